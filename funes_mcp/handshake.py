"""The start of `funes mcp`: owns stdin and stdout, and answers the handshake while the MCP SDK is imported.

Agents leave a server out of their first turn when it does not answer within half a second or so; importing
the SDK alone takes longer on a slow machine. So the first messages are answered from data that the SDK
itself produced (`data/handshake.json`, see `server.handshake_data`), and its session takes over when it is
there: it is shown the message that opened the connection, and its own answer to that is dropped. Anything but
a plain `initialize`, `ping`, `tools/list` or `server/discover` waits for the SDK.

This module imports nothing outside the standard library, and little of that.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from funes_mcp.models import Service

#: Seconds that the import of the SDK waits for the handshake to be over, so that it does not slow it down.
HANDSHAKE_WAIT = 0.3

#: Seconds between looks at whether the process that started us is still there.
PARENT_INTERVAL = 2.0

#: Seconds after the client closed its side until the process ends whatever it does.
LAST_SECONDS = 10.0

# Keys of `_meta` in every request of a client that speaks a version without the `initialize` handshake.
_VERSION = "io.modelcontextprotocol/protocolVersion"
_CLIENT = "io.modelcontextprotocol/clientInfo"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class Wire:
    """The protocol's two streams, taken away from the process's own stdin and stdout.

    After `claim`, descriptor 0 is empty and descriptor 1 is stderr, so that neither a library that prints
    nor a child process can read or write a byte of the protocol.
    """

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._in = incoming
        self._out = outgoing
        self._lock = threading.Lock()

    @classmethod
    def claim(cls) -> Wire:
        """Take over descriptors 0 and 1. Raises `OSError` when either is closed."""
        incoming, outgoing = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:
            os.dup2(null, 1)
        os.close(null)
        if sys.platform == "win32":
            import msvcrt

            for descriptor in (incoming, outgoing):
                msvcrt.setmode(descriptor, os.O_BINARY)
        return cls(incoming, outgoing)

    def lines(self) -> Iterator[bytes]:
        """Lines as they come, without their newline; blank ones are left out. Ends when the client closes."""
        parts: list[bytes] = []
        while True:
            try:
                got = os.read(self._in, 1 << 16)
            except OSError:
                got = b""
            if not got:
                break
            *whole, rest = got.split(b"\n")
            for line in whole:
                parts.append(line)
                text = b"".join(parts).strip()
                parts = []
                if text:
                    yield text
            if rest:
                parts.append(rest)
        text = b"".join(parts).strip()
        if text:
            yield text

    def write(self, data: bytes) -> None:
        """Send bytes, all of them. Blocks as long as the client does not read; raises `OSError` once it is gone."""
        view = memoryview(data)
        with self._lock:
            while view:
                view = view[os.write(self._out, view) :]

    def reader_gone(self) -> bool:
        """Whether the client can no longer receive answers, where the system can tell."""
        try:
            import select

            poll = select.poll()
            poll.register(self._out, 0)
            return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
        except (ImportError, AttributeError, OSError):
            return False


class Inbox:
    """Lines on their way from the reading thread to whoever serves them: kept until there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[bytes | None] = []
        self._sink: Callable[[bytes | None], None] | None = None

    def put(self, line: bytes | None) -> None:
        """Pass a line on; None says that no more will come."""
        with self._lock:
            if self._sink is None:
                self._kept.append(line)
            else:
                self._sink(line)

    def attach(self, sink: Callable[[bytes | None], None]) -> None:
        """Hand over everything kept, in order, and from now on each line as it comes."""
        with self._lock:
            for line in self._kept:
                sink(line)
            self._kept.clear()
            self._sink = sink


class Handshake:
    """Decides which messages are answered before the SDK is there, and with what.

    Args:
        data: As in `data/handshake.json`; None answers nothing.
    """

    def __init__(self, data: Mapping[str, Any] | None) -> None:
        self._initialize: Mapping[str, Any] = data["initialize"] if data else {}
        self._tools: Mapping[str, Any] = data["tools/list"] if data else {}
        self._without: Mapping[str, Any] = data["without handshake"] if data else {}
        self._agreed: str | None = None
        self._no_handshake = False
        self._passing = data is None
        self.replay: tuple[bytes, ...] = ()
        self.answered: tuple[int | str, ...] = ()
        self.complete = threading.Event()
        """Set once the SDK is needed: the tools were listed, or a message waits for it."""

    def take(self, line: bytes) -> bytes | None:
        """The answer to a line, or None when the line is for the SDK."""
        if self._passing:
            return None
        reply = self._reply(line)
        if reply is not None:
            return reply
        if self._agreed is None and not self._no_handshake:
            # The connection begins with something else: from here on it is the SDK's.
            self._passing = True
        return None

    def _reply(self, line: bytes) -> bytes | None:
        try:
            message = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict) and "id" not in message:
            return None  # a notification: the SDK sees it in its turn, and nobody waits
        request = _plain_request(message)
        if request is None:
            self.complete.set()
            return None
        identifier, method, params = request
        result = self._result(method, params)
        if result is None or method == "tools/list":
            self.complete.set()
        if result is None:
            return None
        if not self.replay:
            self.replay, self.answered = (line,), (identifier,)
        return _answer(identifier, result)

    def _result(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The result of a request, or None when the SDK has to say."""
        result: Mapping[str, Any] | None = None
        if self._agreed is not None:
            if _only_progress(params):
                result = {"ping": {}, "tools/list": self._tools[self._agreed]}.get(method)
        elif plain_envelope(params):
            result = self._without.get(params["_meta"][_VERSION], {}).get(method)
            self._no_handshake = self._no_handshake or result is not None
        elif method == "initialize" and not self._no_handshake and plain_opening(params):
            result = self._initialize.get(params["protocolVersion"])
            self._agreed = result["protocolVersion"] if result else None
        return result


def _plain_request(message: Any) -> tuple[int | str, str, Any] | None:
    """Id, method and params (None when absent) of a request that is well-formed beyond doubt."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    identifier, method, params = message["id"], message.get("method"), message.get("params", {})
    if not isinstance(identifier, (int, str)) or isinstance(identifier, bool):
        return None
    if not isinstance(method, str) or not isinstance(params, dict):
        return None
    return identifier, method, params


def plain_opening(params: Mapping[str, Any]) -> bool:
    """Whether these are `initialize` params that the SDK is sure to accept."""
    return (
        isinstance(params.get("protocolVersion"), str)
        and _plain_client(params.get("clientInfo"))
        and _plain_capabilities(params.get("capabilities"))
        and _simple_meta(params)
    )


def plain_envelope(params: Mapping[str, Any]) -> bool:
    """Whether these are the params of a request without arguments that brings its own version, beyond doubt."""
    meta = params.get("_meta")
    if params.keys() != {"_meta"} or not isinstance(meta, dict):
        return False
    return (
        meta.keys() <= {_VERSION, _CLIENT, _CAPABILITIES, "progressToken"}
        and isinstance(meta.get(_VERSION), str)
        and _plain_capabilities(meta.get(_CAPABILITIES))
        and (_CLIENT not in meta or _plain_client(meta[_CLIENT]))
        and _plain_token(meta)
    )


def _plain_client(client: Any) -> bool:
    if not isinstance(client, dict):
        return False
    if not isinstance(client.get("name"), str) or not isinstance(client.get("version"), str):
        return False
    optional = (client.get(name) for name in ("title", "description", "websiteUrl"))
    if not all(value is None or isinstance(value, str) for value in optional):
        return False
    icons = client.get("icons") or []
    return isinstance(icons, list) and all(isinstance(i, dict) and isinstance(i.get("src"), str) for i in icons)


def _plain_capabilities(capabilities: Any) -> bool:
    if not isinstance(capabilities, dict):
        return False
    return all(_plain_capability(name, value) for name, value in capabilities.items())


def _plain_capability(name: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if name == "roots":
        return all(key == "listChanged" and isinstance(inner, bool) for key, inner in value.items())
    return all(isinstance(inner, dict) for inner in value.values())


def _simple_meta(params: Mapping[str, Any]) -> bool:
    if "_meta" not in params:
        return True
    meta = params["_meta"]
    return isinstance(meta, dict) and _VERSION not in meta and _plain_token(meta)


def _plain_token(meta: Mapping[str, Any]) -> bool:
    token = meta.get("progressToken", "")
    return isinstance(token, (int, str)) and not isinstance(token, bool)


def _only_progress(params: Mapping[str, Any]) -> bool:
    return params.keys() <= {"_meta"} and _simple_meta(params)


def _answer(identifier: int | str, result: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}, separators=(",", ":")).encode() + b"\n"


def load_data() -> Mapping[str, Any] | None:
    """The data in the package; None (everything waits for the SDK) when it cannot be read."""
    path = os.path.join(os.path.dirname(__file__), "data", "handshake.json")
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and {"initialize", "tools/list", "without handshake"} <= data.keys() else None


def open_default_service() -> Service:
    """The service on this machine's memory."""
    from funes_mcp.home import FunesHome
    from funes_mcp.service import open_service

    return open_service(FunesHome.from_environ(os.environ), os.environ)


def main(argv: Sequence[str], open_service: Callable[[], Service] = open_default_service) -> int:
    """Serve one client on stdin and stdout until it closes its side; the exit code.

    Args:
        argv: At most one word: the memory that is meant when a call names none.
        open_service: Called at the first tool call.
    """
    import signal

    if sys.stdin is not None and sys.stdin.isatty():
        print("funes mcp speaks the MCP protocol; agents start it. Ctrl-D ends it.", file=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _calm(os.environ)
    try:
        wire = Wire.claim()
    except OSError as error:
        print(f"funes mcp needs an open stdin and stdout: {error}", file=sys.stderr)
        return 1
    threading.Thread(target=_watch_parent, name="funes-parent", daemon=True).start()
    return run(wire, argv[0] if argv else "local", open_service)


def _calm(environ: MutableMapping[str, str]) -> None:
    """One thread for NumPy's products, unless the person says otherwise; before NumPy is imported.

    The products of a recall are too small to share: a second thread brings nothing to the median, doubles the processor
    time by waiting in a loop, and on a busy machine the slowest recalls take nearly twice as long.
    """
    environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run(wire: Wire, memory: str, open_service: Callable[[], Service]) -> int:
    """Serve the client at the other end of `wire`; the exit code."""
    handshake, inbox = Handshake(load_data()), Inbox()
    handing_over, serving = threading.Lock(), threading.Event()
    needed = threading.Event()  # a request waits for the SDK

    def read() -> None:
        for line in wire.lines():
            with handing_over:
                reply = None if serving.is_set() else handshake.take(line)
            if reply is None:
                inbox.put(line)
                if b'"id"' in line:
                    needed.set()
                continue
            try:
                wire.write(reply)
            except OSError:
                break
        if not needed.is_set():
            os._exit(0)  # nobody waits for an answer, so the SDK is not waited for either
        inbox.put(None)
        # Whatever hangs from here on (a client that never reads, a search) is not worth living for.
        time.sleep(LAST_SECONDS)
        os._exit(0)

    threading.Thread(target=read, name="funes-reader", daemon=True).start()
    handshake.complete.wait(HANDSHAKE_WAIT)

    import asyncio

    from funes_mcp import server

    with handing_over:
        serving.set()
    replay = server.Replay(handshake.replay, handshake.answered)
    asyncio.run(server.serve(inbox, wire.write, wire.reader_gone, open_service, memory, replay))
    return 0


def _watch_parent() -> None:
    """End with the process that started us, should its death not close our stdin.

    Windows keeps the parent's id for ever; there the closed stdin alone ends the server.
    """
    parent = os.getppid()
    while True:
        time.sleep(PARENT_INTERVAL)
        if os.getppid() != parent:
            os._exit(0)
