// written by `funes add pi`; `funes remove pi` takes it away. Changes are overwritten.
//
// Tells funes when a session starts, a prompt is done and a session ends, so that it indexes the session's file. Where
// pi has no MCP of its own, it also brings the server's tools to pi.
import { spawn } from "node:child_process";

const server: string[] = /*SERVER*/;
const hook: string[] = /*HOOK*/;
const options: string[] = /*HOOK_OPTIONS*/;
const environment: Record<string, string> = /*ENVIRONMENT*/;
const inFile: boolean = /*IN_FILE*/; // whether the server was written to pi's mcp.json
const quiet = process.env.FUNES_NO_HOOKS && process.env.FUNES_NO_HOOKS !== "0";

function tell(event: string, ctx: any): void {
  try {
    const file = ctx?.sessionManager?.getSessionFile?.();
    if (quiet || (!file && event !== "session_start")) return; // a session that is not saved is not indexed
    const child = spawn(hook[0], [...hook.slice(1), "hook", "pi", event, ...options], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
      env: { ...process.env, ...environment },
    });
    child.on("error", () => {});
    child.stdin.on("error", () => {});
    child.stdin.end(JSON.stringify({ transcript_path: file, cwd: ctx?.cwd }));
    child.unref();
  } catch {
    // a failure to index must never be a failure of the session
  }
}

/** A client of the server on its standard streams, for as long as this pi runs. */
class Client {
  private child: any;
  private next = 1;
  private waiting = new Map<number, { resolve: (v: any) => void; reject: (e: Error) => void }>();
  private rest = "";
  instructions = "";

  async start(): Promise<void> {
    this.child = spawn(server[0], server.slice(1), {
      stdio: ["pipe", "pipe", "ignore"],
      env: { ...process.env, ...environment },
    });
    const child = this.child;
    const end = () => {
      if (this.child === child) this.child = undefined;
      for (const { reject } of this.waiting.values()) reject(new Error("the funes server ended"));
      this.waiting.clear();
    };
    child.on("error", end);
    child.on("exit", end);
    child.stdin.on("error", () => {});
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (chunk: string) => this.read(chunk));
    child.unref(); // pi may end while the server waits; the server ends with its input
    child.stdin.unref?.();
    child.stdout.unref?.();
    const hello = await this.request("initialize", {
      protocolVersion: "2025-06-18",
      capabilities: {},
      clientInfo: { name: "funes-pi", version: "1" },
    });
    this.instructions = hello?.instructions ?? "";
    this.send({ jsonrpc: "2.0", method: "notifications/initialized" });
  }

  async request(method: string, params: any, signal?: AbortSignal, ms = 60000): Promise<any> {
    if (!this.child) throw new Error("the funes server is not running");
    const id = this.next++;
    const answer = new Promise<any>((resolve, reject) => this.waiting.set(id, { resolve, reject }));
    this.child.stdout.ref?.();
    const timer = setTimeout(() => this.waiting.get(id)?.reject(new Error("funes did not answer")), ms);
    const abort = () => this.waiting.get(id)?.reject(new Error("aborted"));
    signal?.addEventListener("abort", abort);
    try {
      this.send({ jsonrpc: "2.0", id, method, params });
      return await answer;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      this.waiting.delete(id);
      if (!this.waiting.size) this.child?.stdout.unref?.();
    }
  }

  async call(name: string, args: any, signal?: AbortSignal): Promise<any> {
    if (!this.child) await this.start();
    return this.request("tools/call", { name, arguments: args ?? {} }, signal);
  }

  stop(): void {
    this.child?.stdin.end();
  }

  private send(message: any): void {
    this.child.stdin.write(JSON.stringify(message) + "\n");
  }

  private read(chunk: string): void {
    this.rest += chunk;
    const lines = this.rest.split("\n");
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      let message: any;
      try {
        message = JSON.parse(line);
      } catch {
        continue;
      }
      const waiting = this.waiting.get(message.id);
      if (waiting && message.error) waiting.reject(new Error(String(message.error.message)));
      else if (waiting && "result" in message) waiting.resolve(message.result);
    }
  }
}

async function bringTools(pi: any): Promise<void> {
  const client = new Client();
  const deadline = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error("funes did not start in time")), 10000).unref();
  });
  await Promise.race([client.start(), deadline]);
  const listed = await client.request("tools/list", {}, undefined, 10000);
  for (const [index, tool] of (listed?.tools ?? []).entries()) {
    const name = `mcp__funes__${tool.name}`;
    pi.registerTool({
      name,
      label: `funes ${tool.name}`,
      description: tool.description ?? tool.name,
      promptSnippet: String(tool.description ?? tool.name).split(/(?<=\.)\s/)[0],
      ...(index === 0 && client.instructions
        ? { promptGuidelines: [client.instructions.replace(/`(recall|get|status)`/g, "`mcp__funes__$1`")] }
        : {}),
      parameters: tool.inputSchema,
      async execute(_id: string, params: any, signal?: AbortSignal) {
        const result = await client.call(tool.name, params, signal);
        const content = (result?.content ?? []).filter((part: any) => part.type === "text");
        if (result?.isError) throw new Error(content.map((part: any) => part.text).join("\n"));
        return { content, details: {} };
      },
    });
  }
  pi.on("session_shutdown", () => client.stop());
}

export default async function (pi: any) {
  const native = typeof pi.registerMcpServer === "function";
  pi.on("session_start", (_event: any, ctx: any) => tell("session_start", ctx));
  // `agent_settled` comes once when a prompt is done with; pi without MCP has only `agent_end`.
  pi.on(native ? "agent_settled" : "agent_end", (_event: any, ctx: any) => tell("agent_settled", ctx));
  pi.on("session_shutdown", (_event: any, ctx: any) => tell("session_shutdown", ctx));
  if (!native) {
    await bringTools(pi).catch(() => {});
    return;
  }
  // This pi had no MCP when funes was added, and has since been updated.
  if (!inFile) {
    pi.registerMcpServer("funes", { command: server[0], args: server.slice(1), env: environment, exposure: "direct" });
  }
}
