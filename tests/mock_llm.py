"""A scripted model on loopback, for driving real agent programs without a network.

Speaks the three protocols that the agents use (standard library only):

    POST /v1/messages              Anthropic Messages, streamed or whole   Claude Code
    POST /v1/messages/count_tokens                                         Claude Code
    POST /v1/responses             OpenAI Responses, streamed or whole     Codex
    POST /v1/responses/compact     OpenAI Responses compaction             Codex
    POST /v1/chat/completions      OpenAI chat, streamed or whole          pi, Hermes
    GET  /v1/models                                                        all

The prompt is the script, so it does not matter how many side calls (titles, summaries) a client makes.
Directives are read from the newest user text that holds any:

    [[tool:REGEX {json args}]]   call the first offered tool whose full name matches; several: one per model turn
    [[think:some text]]          a thinking part before the answer
    [[text:final answer]]        the final text (else "MOCK-ANSWER" and the beginning of the last tool result)
    [[fail:400]]                 answer with that HTTP status
    [[usage:N]]                  report N input tokens
    [[wait:SECONDS]]             answer only then
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

START = re.compile(r"\[\[(tool|think|text|fail|usage|wait):")
_seq = itertools.count(1)


def nid(prefix: Any) -> Any:
    return f"{prefix}_mock{next(_seq):06d}"


def directives(text: Any) -> Any:
    """(kind, body) of each top-level [[kind:body]]; bodies may hold balanced [[...]] (for subagents)."""
    pos = 0
    while m := START.search(text, pos):
        depth, i = 1, m.end()
        while depth and i < len(text):
            two = text[i : i + 2]
            depth += (two == "[[") - (two == "]]")
            i += 2 if two in ("[[", "]]") else 1
        if depth:
            return
        yield m.group(1), text[m.end() : i - 2]
        pos = i


def parse_script(text: Any) -> Any:
    s = {"tools": [], "think": None, "text": None, "fail": None, "usage": None, "wait": None}
    for kind, body in directives(text or ""):
        body = body.strip()
        if kind == "tool":
            name, _, args = body.partition(" ")
            s["tools"].append((name, json.loads(args) if args.strip() else {}))
        else:
            s[kind] = body
    return s


def flat(content: Any) -> Any:
    """Any vendor's message content -> text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return flat(content.get("text") if "text" in content else content.get("content", content.get("output")))
    return "\n".join(filter(None, (flat(c) for c in content)))


def plan(events: Any, tool_names: Any) -> Any:
    """events: ordered ('user'|'result', text).  Decide the next step."""
    script, results, last = parse_script(""), 0, ""
    for kind, text in events:
        if kind == "user" and START.search(text):
            script, results, last = parse_script(text), 0, ""
        elif kind == "result":
            results += 1
            last = text
    step = {
        "think": script["think"],
        "usage": int(script["usage"] or 100),
        "fail": script["fail"],
        "wait": float(script["wait"] or 0),
    }
    if results < len(script["tools"]):
        rx, args = script["tools"][results]
        name = next((n for n in tool_names if re.search(rx, n)), None)
        if name:
            step["tool"] = (name, args)
            return step
        step["text"] = f"MOCK-NO-TOOL {rx!r} among {tool_names}"
        return step
    step["text"] = script["text"] or ("MOCK-ANSWER" + (f" after tool result: {last[:200]}" if results else ""))
    return step


# Anthropic
def anthropic_events(body: Any) -> Any:
    ev = []
    for m in body.get("messages", []):
        c = m.get("content")
        if m.get("role") != "user":
            continue
        if isinstance(c, str):
            ev.append(("user", c))
            continue
        for b in c or []:
            if b.get("type") == "tool_result":
                ev.append(("result", flat(b.get("content"))))
            elif b.get("type") == "text":
                ev.append(("user", b.get("text", "")))
    return ev


def anthropic_reply(body: Any) -> Any:
    names = [t.get("name", "") for t in body.get("tools", [])]
    step = plan(anthropic_events(body), names)
    blocks, stop = [], "end_turn"
    if step["think"]:
        blocks.append({"type": "thinking", "thinking": step["think"], "signature": "bW9jay1zaWduYXR1cmU="})
    if "tool" in step:
        blocks.append({"type": "tool_use", "id": nid("toolu"), "name": step["tool"][0], "input": step["tool"][1]})
        stop = "tool_use"
    else:
        blocks.append({"type": "text", "text": step["text"]})
    return step, {
        "id": nid("msg"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "mock"),
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": step["usage"],
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 20,
        },
    }


def anthropic_sse(msg: Any) -> Any:
    start = dict(msg, content=[], stop_reason=None, usage=dict(msg["usage"], output_tokens=1))
    yield "message_start", {"type": "message_start", "message": start}
    for i, b in enumerate(msg["content"]):
        if b["type"] == "thinking":
            yield (
                "content_block_start",
                {
                    "type": "content_block_start",
                    "index": i,
                    "content_block": {"type": "thinking", "thinking": "", "signature": ""},
                },
            )
            yield (
                "content_block_delta",
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "thinking_delta", "thinking": b["thinking"]},
                },
            )
            yield (
                "content_block_delta",
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "signature_delta", "signature": b["signature"]},
                },
            )
        elif b["type"] == "text":
            yield (
                "content_block_start",
                {"type": "content_block_start", "index": i, "content_block": {"type": "text", "text": ""}},
            )
            yield (
                "content_block_delta",
                {"type": "content_block_delta", "index": i, "delta": {"type": "text_delta", "text": b["text"]}},
            )
        else:
            yield "content_block_start", {"type": "content_block_start", "index": i, "content_block": dict(b, input={})}
            yield (
                "content_block_delta",
                {
                    "type": "content_block_delta",
                    "index": i,
                    "delta": {"type": "input_json_delta", "partial_json": json.dumps(b["input"])},
                },
            )
        yield "content_block_stop", {"type": "content_block_stop", "index": i}
    yield (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": msg["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": 20},
        },
    )
    yield "message_stop", {"type": "message_stop"}


# OpenAI Responses
def responses_tools(body: Any) -> Any:
    """-> {full name: (namespace|None, name, kind)}; namespaces are flattened as ns + name."""
    out = {}

    def add(tools: Any) -> Any:
        for t in tools or []:
            if t.get("type") == "namespace":
                for s in t.get("tools", []):
                    ns = t["name"]
                    sep = "" if ns.endswith("__") else "__"
                    out[f"{ns}{sep}{s['name']}"] = (ns, s["name"], s.get("type", "function"))
            elif t.get("name"):
                out[t["name"]] = (None, t["name"], t.get("type"))
            elif t.get("type"):
                out[t["type"]] = (None, t["type"], t["type"])

    add(body.get("tools"))
    for it in body.get("input") if isinstance(body.get("input"), list) else []:
        if it.get("type") in ("tool_search_output", "additional_tools"):
            add(it.get("tools"))
    return out


def responses_events(body: Any) -> Any:
    inp = body.get("input")
    ev = []
    if isinstance(inp, str):
        ev.append(("user", inp))
    for it in inp if isinstance(inp, list) else []:
        t = it.get("type", "message")
        if t == "message" and it.get("role") == "user":
            ev.append(("user", flat(it.get("content"))))
        elif t.endswith("_output"):
            ev.append(("result", flat(it.get("output", it.get("tools")))))
    return ev


def responses_reply(body: Any) -> Any:
    tools = responses_tools(body)
    step = plan(responses_events(body), list(tools))
    out = []
    if step["think"]:
        out.append(
            {
                "type": "reasoning",
                "id": nid("rs"),
                "summary": [{"type": "summary_text", "text": step["think"]}],
                "encrypted_content": "bW9jay1lbmNyeXB0ZWQ=",
            }
        )
    if "tool" in step:
        ns, name, kind = tools[step["tool"][0]]
        if kind == "custom":
            item = {
                "type": "custom_tool_call",
                "id": nid("ctc"),
                "call_id": nid("call"),
                "name": name,
                "input": step["tool"][1].get("input", ""),
                "status": "completed",
            }
        elif kind == "tool_search":
            item = {
                "type": "tool_search_call",
                "id": nid("tsc"),
                "call_id": nid("call"),
                "execution": "client",
                "arguments": step["tool"][1],
                "status": "completed",
            }
        else:
            item = {
                "type": "function_call",
                "id": nid("fc"),
                "call_id": nid("call"),
                "name": name,
                "arguments": json.dumps(step["tool"][1]),
                "status": "completed",
            }
            if ns:
                item["namespace"] = ns
        out.append(item)
    else:
        out.append(
            {
                "type": "message",
                "id": nid("msg"),
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": step["text"], "annotations": []}],
            }
        )
    return step, {
        "id": nid("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": body.get("model", "mock"),
        "output": out,
        "usage": {
            "input_tokens": step["usage"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": step["usage"] + 20,
        },
    }


def responses_sse(resp: Any) -> Any:
    n = itertools.count()
    yield (
        "response.created",
        {
            "type": "response.created",
            "sequence_number": next(n),
            "response": dict(resp, status="in_progress", output=[], usage=None),
        },
    )
    for i, it in enumerate(resp["output"]):
        stub = dict(it, status="in_progress")
        if it["type"] == "message":
            stub["content"] = []
        yield (
            "response.output_item.added",
            {"type": "response.output_item.added", "sequence_number": next(n), "output_index": i, "item": stub},
        )
        if it["type"] == "reasoning":
            yield (
                "response.reasoning_summary_part.added",
                {
                    "type": "response.reasoning_summary_part.added",
                    "sequence_number": next(n),
                    "item_id": it["id"],
                    "output_index": i,
                    "summary_index": 0,
                    "part": {"type": "summary_text", "text": ""},
                },
            )
            yield (
                "response.reasoning_summary_text.delta",
                {
                    "type": "response.reasoning_summary_text.delta",
                    "sequence_number": next(n),
                    "item_id": it["id"],
                    "output_index": i,
                    "summary_index": 0,
                    "delta": it["summary"][0]["text"],
                },
            )
        if it["type"] == "message":
            txt = it["content"][0]["text"]
            base = {"item_id": it["id"], "output_index": i, "content_index": 0}
            yield (
                "response.content_part.added",
                dict(
                    base,
                    type="response.content_part.added",
                    sequence_number=next(n),
                    part={"type": "output_text", "text": "", "annotations": []},
                ),
            )
            yield (
                "response.output_text.delta",
                dict(base, type="response.output_text.delta", sequence_number=next(n), delta=txt),
            )
            yield (
                "response.output_text.done",
                dict(base, type="response.output_text.done", sequence_number=next(n), text=txt),
            )
        yield (
            "response.output_item.done",
            {"type": "response.output_item.done", "sequence_number": next(n), "output_index": i, "item": it},
        )
    yield "response.completed", {"type": "response.completed", "sequence_number": next(n), "response": resp}


# OpenAI chat completions
def chat_events(body: Any) -> Any:
    ev = []
    for m in body.get("messages", []):
        if m.get("role") == "user":
            ev.append(("user", flat(m.get("content"))))
        elif m.get("role") == "tool":
            ev.append(("result", flat(m.get("content"))))
    return ev


def chat_reply(body: Any) -> Any:
    names = [t.get("function", {}).get("name", "") for t in body.get("tools") or []]
    step = plan(chat_events(body), names)
    msg = {"role": "assistant", "content": None}
    finish = "stop"
    if step["think"]:
        msg["reasoning_content"] = step["think"]
    if "tool" in step:
        msg["tool_calls"] = [
            {
                "id": nid("call"),
                "type": "function",
                "function": {"name": step["tool"][0], "arguments": json.dumps(step["tool"][1])},
            }
        ]
        finish = "tool_calls"
    else:
        msg["content"] = step["text"]
    usage = {"prompt_tokens": step["usage"], "completion_tokens": 20, "total_tokens": step["usage"] + 20}
    return step, {
        "id": nid("chatcmpl"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model", "mock"),
        "choices": [{"index": 0, "message": msg, "finish_reason": finish}],
        "usage": usage,
    }


def chat_sse(resp: Any) -> Any:
    base = {k: resp[k] for k in ("id", "created", "model")}
    base["object"] = "chat.completion.chunk"
    msg, fin = resp["choices"][0]["message"], resp["choices"][0]["finish_reason"]

    def chunk(delta: Any, finish=None, **kw) -> Any:
        return None, dict(base, choices=[{"index": 0, "delta": delta, "finish_reason": finish}], **kw)

    yield chunk({"role": "assistant", "content": ""})
    if msg.get("reasoning_content"):
        yield chunk({"reasoning_content": msg["reasoning_content"]})
    if msg.get("content"):
        yield chunk({"content": msg["content"]})
    for i, tc in enumerate(msg.get("tool_calls") or []):
        yield chunk({"tool_calls": [dict(tc, index=i)]})
    yield chunk({}, fin)
    yield None, dict(base, choices=[], usage=resp["usage"])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "mock"

    def log_message(self, *_: object) -> None:
        pass

    def _json(self, code: int, obj: Any) -> None:
        data = json.dumps(obj).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _sse(self, events: Any, done: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            self.wfile.write(((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n").encode())
            self.wfile.flush()
        if done:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if not path.rstrip("/").endswith("/models"):
            return self._json(404, {"error": {"type": "not_found_error", "message": f"no {path}"}})
        created = "2025-01-01T00:00:00Z"
        model = {"id": "mock-model", "object": "model", "type": "model", "display_name": "mock", "owned_by": "mock"}
        data = [{**model, "created": 1, "created_at": created}]
        self._json(200, {"object": "list", "data": data, "has_more": False, "models": []})

    def _body(self) -> dict[str, Any]:
        if (self.headers.get("transfer-encoding") or "").lower() == "chunked":
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        value = json.loads(raw or b"{}")
        return value if isinstance(value, dict) else {}

    def do_POST(self) -> None:
        body = self._body()
        path = self.path.split("?")[0]
        step: dict[str, Any] = {}
        stream = None
        if path.endswith("/messages/count_tokens"):
            out: dict[str, Any] = {"input_tokens": 100}
        elif path.endswith("/messages"):
            step, out = anthropic_reply(body)
            stream = anthropic_sse
        elif path.endswith("/responses/compact"):
            content = [{"type": "input_text", "text": "MOCK-COMPACTED"}]
            out = {"output": [{"type": "message", "role": "user", "content": content}]}
        elif path.endswith("/responses"):
            step, out = responses_reply(body)
            stream = responses_sse
        elif path.endswith("/chat/completions"):
            step, out = chat_reply(body)
            stream = chat_sse
        else:
            return self._json(404, {"error": {"type": "not_found_error", "message": f"no {path}"}})
        if step:
            request = Request(path, body)
            self.server.model.requests.append(request)  # type: ignore[attr-defined]
            self.server.model.hold(request)  # type: ignore[attr-defined]
        time.sleep(step.get("wait") or 0)
        try:
            if step.get("fail"):
                error = {"type": "api_error", "message": "scripted failure"}
                self._json(int(step["fail"]), {"type": "error", "error": error})
            elif stream and body.get("stream"):
                self._sse(stream(out), done=stream is chat_sse)
            else:
                self._json(200, out)
        except (BrokenPipeError, ConnectionResetError):
            pass


class Request:
    """One turn of the model: what the agent sent."""

    def __init__(self, path: str, body: dict[str, Any]) -> None:
        self.path = path
        self.body = body
        self.at = time.time()

    @property
    def tools(self) -> list[str]:
        """The full names of the tools that were offered."""
        if self.path.endswith("/responses"):
            return list(responses_tools(self.body))
        tools = self.body.get("tools") or []
        return [tool.get("name") or tool.get("function", {}).get("name", "") for tool in tools]

    @property
    def events(self) -> list[tuple[str, str]]:
        """`user` texts and tool `result`s, in order."""
        if self.path.endswith("/responses"):
            return responses_events(self.body)
        return anthropic_events(self.body) if self.path.endswith("/messages") else chat_events(self.body)


class Model:
    """The server, on a free port, for a `with` block.

    Attributes:
        requests: What agents sent, in order.
        hold: Called with each request before it is answered; the answer comes when it returns.
        port: Where it listens.
    """

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.requests: list[Request] = []
        self.hold: Callable[[Request], object] = lambda request: None
        self._server.model = self  # type: ignore[attr-defined]
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Model:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
