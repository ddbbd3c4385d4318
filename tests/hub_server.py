"""A Hub on the loopback: dataset repositories with commits, to be used through the unmodified `huggingface_hub`.

What a real Hub does differently: it also stores large files in chunks ("Xet"), which the library prefers for names of
files where `hf_xet` is installed (`funes` hands over streams, which take the path that is here);
it sends large uploads in parts; its large files lie at hosts with signed addresses (here: the same server under the
name `localhost`); it makes a first commit of `.gitattributes`, as this one does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

WRITER = "hf_loopbackWriter"
READER = "hf_loopbackReader"
STRANGER = "hf_loopbackStranger"

#: What a new repository's .gitattributes sends to the large files: by name, or by size as the Hub itself does.
_LARGE_NAMES: Final = (".lance", ".parquet", ".arrow", ".bin", ".zip")
_LARGE: Final = 10_000
_ATTRIBUTES: Final = b"*.lance filter=lfs diff=lfs merge=lfs -text\n"


@dataclass(frozen=True)
class Account:
    """Whose a token is.

    Attributes:
        spaces: Owners whose private repositories it may see, and write to with `write`; None: all.
    """

    name: str
    write: bool
    spaces: tuple[str, ...] | None = None

    def sees(self, repo: str) -> bool:
        return self.spaces is None or repo.split("/")[0] in self.spaces


@dataclass(frozen=True)
class Blob:
    """A file's content, and what it is called."""

    data: bytes
    large: bool

    @property
    def git(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    @property
    def oid(self) -> str:
        return hashlib.sha256(self.data).hexdigest() if self.large else self.git


@dataclass(frozen=True)
class Commit:
    """One state of a branch."""

    id: str
    parent: str | None
    tree: dict[str, Blob]
    message: str


@dataclass
class Repo:
    """A dataset repository. `large` is what has been uploaded, whether or not a commit names it."""

    name: str
    private: bool = False
    gated: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)

    def at(self, revision: str) -> Commit | None:
        return self.commits.get(self.branches.get(revision, revision))

    def head(self, branch: str = "main") -> Commit:
        return self.commits[self.branches[branch]]

    @property
    def files(self) -> dict[str, bytes]:
        """What `main` holds."""
        return {path: blob.data for path, blob in self.head().tree.items()}

    def history(self, branch: str = "main") -> list[Commit]:
        """The commits of a branch, the newest first."""
        found = []
        at: str | None = self.branches[branch]
        while at is not None:
            found.append(self.commits[at])
            at = self.commits[at].parent
        return found

    def put(self, tree: Mapping[str, Blob], message: str, branch: str = "main") -> Commit:
        parent = self.branches.get(branch)
        what = repr((parent, message, len(self.commits), [(p, b.git) for p, b in sorted(tree.items())]))
        made = Commit(hashlib.sha1(what.encode()).hexdigest(), parent, dict(tree), message)
        self.commits[made.id] = made
        self.branches[branch] = made.id
        return made


@dataclass(frozen=True)
class Asked:
    """A request as it came. `status` 0: the connection was cut instead of an answer."""

    stage: str
    method: str
    host: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    status: int


@dataclass
class Fault:
    """What a test has armed: the next `times` requests of a stage end so.

    Attributes:
        how: A status, or "cut" (the connection ends), or "stall" (no answer until the Hub is closed).
        after: How many bytes pass first, of an upload's or commit's body, or of an answer's.
    """

    stage: str
    how: int | str
    times: int
    after: int
    path: str
    method: str
    headers: dict[str, str]
    body: bytes


class _Answer(Exception):
    """Ends the handling of a request."""

    def __init__(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


class _Cut(Exception):
    """Ends a connection."""


def _json(what: Any, status: int = 200, **headers: str) -> _Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _Answer(status, json.dumps(what).encode(), {"Content-Type": "application/json", **named})


def _error(status: int, message: str, code: str = "") -> _Answer:
    headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
    return _Answer(status, json.dumps({"error": message}).encode(), {"Content-Type": "application/json", **headers})


class LoopbackHub:
    """A Hub that runs while the context is open.

    Attributes:
        repos: By name.
        tokens: Accounts by token: `WRITER` may do all, `READER` may only read, `STRANGER` sees no private repository.
        page: How many entries one answer about a tree holds.
        renamed: Repositories that have another name now: old to new.
        asked: Every request, in the order in which they were answered.
        before_commit: Called with the repository's name before a commit is looked at, without a lock held; not for
            commits that arrive meanwhile.
    """

    def __init__(self, *, page: int = 3) -> None:
        self.repos: dict[str, Repo] = {}
        self.tokens = {
            WRITER: Account("writer", True),
            READER: Account("reader", False),
            STRANGER: Account("stranger", True, ("stranger",)),
        }
        self.page = page
        self.renamed: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.before_commit: Callable[[str], None] | None = None
        self._hooked = False
        self._stalled: dict[str, threading.Event] = {}
        self._faults: list[Fault] = []
        self._lock = threading.RLock()
        self._closed = threading.Event()

    def __enter__(self) -> LoopbackHub:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                _Exchange(hub, self).run()

            do_HEAD = do_POST = do_PUT = do_GET

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                pass  # clients are killed in the tests

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.large_url = f"http://localhost:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def environ(self, home: Path, token: str | None = WRITER) -> dict[str, str]:
        """The environment of a process that uses this Hub, with a home of its own."""
        environ = {
            "HOME": str(home),
            "FUNES_HOME": str(home / "funes"),
            "HF_HOME": str(home / "hf"),
            "HF_ENDPOINT": self.url,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "PATH": "/usr/bin:/bin",
        }
        return environ | ({"HF_TOKEN": token} if token is not None else {})

    def settle(self, monkeypatch: Any, home: Path, token: str | None = WRITER) -> None:
        """The same for this process: the library has read some of it when it was imported."""
        import huggingface_hub.constants as constants

        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_OIDC_RESOURCE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in self.environ(home, token).items():
            if name != "PATH":
                monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hf" / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "hf" / "token"))
        monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(home / "hf" / ".agent_harnesses.json"))

    def add(
        self,
        repo: str,
        files: Mapping[str, bytes] | None = None,
        *,
        private: bool = False,
        delete: tuple[str, ...] = (),
        branch: str = "main",
        message: str = "planted",
    ) -> Commit:
        """Commit files directly, also hostile ones, and make the repository if there is none."""
        with self._lock:
            if repo not in self.repos:
                self.repos[repo] = Repo(repo, private)
                first = self.repos[repo].put({".gitattributes": Blob(_ATTRIBUTES, False)}, "initial commit")
                if not files:
                    return first
            at = self.repos[repo]
            at.branches.setdefault(branch, at.branches["main"])
            tree = {path: blob for path, blob in at.head(branch).tree.items() if path not in delete}
            for path, data in (files or {}).items():
                tree[path] = Blob(data, _large(path, len(data), data[:512]))
                if tree[path].large:
                    at.large[tree[path].oid] = data
            return at.put(tree, message, branch)

    def add_folder(self, repo: str, folder: Path, under: str = "", *, private: bool = False) -> Commit:
        """Commit all of a folder, under a path of the repository."""
        names = {p: p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()}
        return self.add(
            repo,
            {f"{under}/{name}" if under else name: p.read_bytes() for p, name in names.items()},
            private=private,
        )

    def fail(
        self,
        stage: str,
        how: int | str,
        times: int = 1,
        *,
        after: int = 0,
        path: str = "",
        method: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Let the next requests of a stage fail.

        Args:
            stage: "whoami", "create", "info", "tree", "paths", "resolve" (with HEAD or GET), "content" (of a large
                file), "yaml", "preupload", "batch", "upload", "verify", "commit" (before it lands), "landed" (after).
            how: A status, "cut" or "stall": no answer while the Hub runs, see `stalled`.
            after: Bytes that pass before a cut; of an upload also before a stall.
            path: Only for requests whose path holds this.
            method: Only for this method.
            headers: Of the answer, with a status.
            body: The same.
        """
        with self._lock:
            self._faults.append(Fault(stage, how, times, after, path, method, dict(headers or {}), body))

    def calm(self) -> None:
        """Take all armed faults back."""
        with self._lock:
            self._faults.clear()

    def saw(self, needle: bytes) -> bool:
        """Whether these bytes reached the Hub: in any body as it came, or inside of what a body wraps or compresses.

        Tables of others may be compressed in a way that is not seen through here: read those as well (`written`).
        """
        return any(needle in part for one in self.asked for part in _parts(one))

    def written(self, repo: str, folder: Path, revision: str = "main") -> Path:
        """All files of a revision, in a folder."""
        commit = self.repos[repo].at(revision)
        assert commit is not None
        for path, blob in commit.tree.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(blob.data)
        return folder

    def count(self, stage: str, path: str = "", method: str = "") -> int:
        """How many requests of a stage there were."""
        return sum(
            one.stage == stage and path in one.path and (not method or one.method == method) for one in self.asked
        )

    def fault(self, stage: str, method: str, path: str) -> Fault | None:
        """The fault that is armed for a request, used up once."""
        with self._lock:
            for fault in self._faults:
                if fault.stage == stage and fault.path in path and fault.method in ("", method):
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                    return fault
        return None

    def arrived(self, repo: str) -> None:
        """A commit is here, and is looked at when this returns."""
        with self._lock:
            hook = None if self._hooked else self.before_commit
            self._hooked = self._hooked or hook is not None
        if hook is not None:
            try:
                hook(repo)
            finally:
                self._hooked = False

    def locked(self) -> threading.RLock:
        return self._lock  # type: ignore[return-value]

    def stalled(self, stage: str, patience: float = 300.0) -> bool:
        """Wait until a request stalls at a stage; whether one did."""
        with self._lock:
            event = self._stalled.setdefault(stage, threading.Event())
        return event.wait(patience)

    def wait(self, stage: str) -> None:
        """Until the Hub is closed."""
        with self._lock:
            self._stalled.setdefault(stage, threading.Event()).set()
        self._closed.wait(600)


def _large(path: str, size: int, sample: bytes) -> bool:
    """Whether a file goes to the large ones: by its name, for its size, or because it is no text."""
    return size > 0 and (path.endswith(_LARGE_NAMES) or size > _LARGE or b"\0" in sample)


def _parts(one: Asked) -> list[bytes]:
    """A body, and what is in it in base64 or compressed, as texts in our tables are."""
    parts = [one.body, one.path.encode(), one.query.encode()]
    if one.stage == "upload":
        import zstandard

        for found in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), one.body):
            with suppress(zstandard.ZstdError):  # four bytes that were no beginning
                parts.append(zstandard.ZstdDecompressor().decompressobj().decompress(one.body[found.start() :]))
    if one.stage in ("commit", "preupload", "landed"):
        for found in re.findall(rb'"(?:content|sample)": ?"([A-Za-z0-9+/=]*)"', one.body):
            parts.append(base64.b64decode(found))
    return parts


#: Method, pattern of the path and stage of every request that is understood, and the method that answers it.
_ROUTES: Final = (
    ("GET", r"/api/whoami-v2", "whoami"),
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "yaml"),
    ("GET", r"/api/datasets/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?", "info"),
    ("GET", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)(?:/(?P<path>.+))?", "tree"),
    ("POST", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/paths-info/(?P<revision>[^/]+)", "paths"),
    ("POST", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/preupload/(?P<revision>[^/]+)", "preupload"),
    ("POST", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/commit/(?P<revision>[^/]+)", "commit"),
    ("GET", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/auth-check(?P<write>/write)?", "auth"),
    ("GET", r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
    ("POST", r"/datasets/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch"),
    ("PUT", r"/large/(?P<repo>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})", "upload"),
    ("GET", r"/large/(?P<repo>[^/]+/[^/]+)/(?P<oid>[0-9a-f]{64})", "content"),
    ("POST", r"/api/datasets/(?P<repo>[^/]+/[^/]+)/verify", "verify"),
)
_WRITES: Final = ("create", "preupload", "batch", "verify", "commit")


class _Exchange:
    """One request and its answer."""

    def __init__(self, hub: LoopbackHub, handler: BaseHTTPRequestHandler) -> None:
        self.hub = hub
        self.handler = handler
        at = urlsplit(handler.path)
        self.path = at.path
        self.query = {name: values[-1] for name, values in parse_qs(at.query).items()}
        self.body = b""
        self.stage = "unknown"
        self.named: dict[str, str] = {}
        method = "GET" if handler.command == "HEAD" else handler.command
        for wanted, pattern, stage in _ROUTES:
            if wanted == method and (match := re.fullmatch(pattern, at.path)):
                self.stage = stage
                self.named = {name: unquote(value) for name, value in match.groupdict().items() if value is not None}
                break

    def run(self) -> None:
        fault = self.hub.fault(self.stage, self.handler.command, self.path)
        try:
            self._receive(fault)
            if fault is not None and fault.how == "stall":
                self.hub.wait(self.stage)
                raise _Cut
            if fault is not None and fault.how == "cut" and not (self._is_download() and fault.after):
                raise _Cut
            if fault is not None and isinstance(fault.how, int):
                raise _Answer(fault.how, fault.body, fault.headers)
            answer = self._answered()
            if self.stage == "commit" and (late := self.hub.fault("landed", "POST", self.path)) is not None:
                if late.how == "stall":
                    self.hub.wait("landed")
                if not isinstance(late.how, int):
                    raise _Cut
                answer = _Answer(late.how, late.body, late.headers)
        except _Answer as raised:
            answer = raised
        except _Cut:
            self._log(0)
            self._cut()
            return
        self._log(answer.status)
        self._send(answer, fault.after if fault is not None and fault.how == "cut" else None)

    def _is_download(self) -> bool:
        return self.stage in ("resolve", "content", "tree", "info", "paths")

    def _receive(self, fault: Fault | None) -> None:
        """Read the body, or as much of it as is let through before a cut."""
        size = int(self.handler.headers.get("Content-Length") or 0)
        if fault is not None and fault.how == "cut" and not self._is_download():
            self.body = self.handler.rfile.read(min(size, fault.after))
            raise _Cut
        if fault is not None and fault.how == "stall" and fault.after:
            self.body = self.handler.rfile.read(min(size, fault.after))
            return
        self.body = self.handler.rfile.read(size)
        if len(self.body) < size:
            raise _Cut  # the client is gone

    def _log(self, status: int) -> None:
        host = self.handler.headers.get("Host", "").split(":")[0]
        headers = {name.lower(): value for name, value in self.handler.headers.items()}
        asked = Asked(
            self.stage,
            self.handler.command,
            host,
            unquote(self.path),
            urlsplit(self.handler.path).query,
            headers,
            self.body,
            status,
        )
        with self.hub.locked():
            self.hub.asked.append(asked)

    def _cut(self) -> None:
        self.handler.close_connection = True
        try:
            self.handler.wfile.flush()
            self.handler.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _send(self, answer: _Answer, cut: int | None) -> None:
        handler = self.handler
        try:
            handler.send_response(answer.status)
            for name, value in answer.headers.items():
                handler.send_header(name, value)
            if "Content-Length" not in answer.headers:
                handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            if handler.command != "HEAD":
                handler.wfile.write(answer.body if cut is None else answer.body[:cut])
        except OSError:
            handler.close_connection = True
            return
        if cut is not None:
            self._cut()

    def _answered(self) -> _Answer:
        if self.stage == "unknown":
            return _error(404, "Sorry, we can't find the page you are looking for.")
        if self.stage in ("upload", "content"):
            return self._large_file()
        account = self._account()
        if self.stage == "whoami":
            if account is None:
                return _error(401, "Invalid username or password.")
            role = {"type": "access_token", "accessToken": {"role": "write" if account.write else "read"}}
            return _json({"type": "user", "name": account.name, "auth": role})
        if self.stage == "yaml":
            return _json({"errors": [], "warnings": []})
        if self.stage == "create":
            return self._create(account)
        repo = self._repo(account)
        if self.stage in _WRITES:
            self._may_write(account, repo.name)
        if self.stage == "auth":
            if "write" in self.named:
                self._may_write(account, repo.name)
            return _Answer(200)
        answer: _Answer = getattr(self, f"_{self.stage}")(repo)
        return answer

    # Who may do what

    def _account(self) -> Account | None:
        header = self.handler.headers.get("Authorization")
        if header is None:
            return None
        account = self.hub.tokens.get(header.removeprefix("Bearer "))
        if account is None:
            raise _error(401, "Invalid credentials in Authorization header")
        return account

    def _repo(self, account: Account | None) -> Repo:
        name = self.named["repo"]
        if (now := self.hub.renamed.get(name)) is not None:
            raise _Answer(307, b"", {"Location": self.handler.path.replace(name, now, 1)})
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and (account is None or not account.sees(name))):
            if account is None:
                raise _error(401, "Invalid username or password.", "RepoNotFound")
            raise _error(404, "Repository not found", "RepoNotFound")
        if repo.gated and self.stage != "info" and (account is None or not account.sees(name)):
            status = 401 if account is None else 403
            raise _error(status, f"Access to dataset {name} is restricted.", "GatedRepo")
        return repo

    def _may_write(self, account: Account | None, name: str) -> None:
        if account is None:
            raise _error(401, "Invalid username or password.")
        if not account.write or not account.sees(name):
            raise _error(403, f"Forbidden: you don't have the rights to write to {name.split('/')[0]}")

    def _at(self, repo: Repo) -> Commit:
        revision = self.named.get("revision", "main")
        commit = repo.at(revision)
        if commit is None:
            raise _error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return commit

    # Looking

    def _info(self, repo: Repo) -> _Answer:
        with self.hub.locked():
            commit = self._at(repo)
            about = {
                "author": repo.name.split("/")[0],
                "sha": commit.id,
                "private": repo.private,
                "gated": repo.gated,
                "disabled": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": [{"rfilename": path} for path in commit.tree],
            }
        wanted = parse_qs(urlsplit(self.handler.path).query).get("expand", list(about))
        return _json({"_id": "0" * 24, "id": repo.name, **{name: about[name] for name in wanted}})

    def _tree(self, repo: Repo) -> _Answer:
        with self.hub.locked():
            commit = self._at(repo)
        under = self.named.get("path", "").strip("/")
        prefix = f"{under}/" if under else ""
        inside = sorted(path for path in commit.tree if path.startswith(prefix))
        if under and not inside:
            raise _error(404, f"{under} does not exist on {self.named['revision']!r}", "EntryNotFound")
        entries: dict[str, dict[str, Any]] = {}
        recursive = self.query.get("recursive", "false").lower() == "true"
        for path in inside:
            parts = path[len(prefix) :].split("/")
            for end in range(1, len(parts) if recursive else min(len(parts), 2)):
                folder = prefix + "/".join(parts[:end])
                entries[folder] = {
                    "type": "directory",
                    "oid": hashlib.sha1(folder.encode()).hexdigest(),
                    "size": 0,
                    "path": folder,
                }
            if recursive or len(parts) == 1:
                entries[path] = _entry(path, commit.tree[path])
        start = int(self.query.get("cursor", "0"))
        shown = list(entries.values())[start : start + self.hub.page]
        headers = {}
        if start + self.hub.page < len(entries):
            at = f"{self.hub.url}{self.path}?recursive={str(recursive).lower()}&cursor={start + self.hub.page}"
            headers["Link"] = f'<{at}>; rel="next"'
        return _json(shown, **headers)

    def _paths(self, repo: Repo) -> _Answer:
        with self.hub.locked():
            commit = self._at(repo)
        if self.handler.headers.get("Content-Type", "").startswith("application/json"):
            wanted = json.loads(self.body)["paths"]
        else:
            wanted = parse_qs(self.body.decode()).get("paths", [])
        return _json([_entry(path, commit.tree[path]) for path in wanted if path in commit.tree])

    def _resolve(self, repo: Repo) -> _Answer:
        with self.hub.locked():
            commit = self._at(repo)
        path = self.named["path"]
        blob = commit.tree.get(path)
        if blob is None:
            missing = _error(404, "Entry not found", "EntryNotFound")
            missing.headers["X-Repo-Commit"] = commit.id
            raise missing
        headers = {"X-Repo-Commit": commit.id, "Accept-Ranges": "bytes"}
        if blob.large:
            headers |= {
                "Location": f"{self.hub.large_url}/large/{repo.name}/{blob.oid}",
                "X-Linked-Etag": f'"{blob.oid}"',
                "X-Linked-Size": str(len(blob.data)),
                "ETag": f'"{blob.git}"',
            }
            return _Answer(302, b"", headers)
        return self._ranged(blob.data, {**headers, "ETag": f'"{blob.git}"'})

    def _ranged(self, data: bytes, headers: dict[str, str]) -> _Answer:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.handler.headers.get("Range", ""))
        if not wanted:
            return _Answer(200, data, {**headers, "Content-Length": str(len(data))})
        start, end = int(wanted[1]), int(wanted[2] or len(data) - 1)
        if start >= len(data):
            return _Answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        part = data[start : end + 1]
        return _Answer(
            206,
            part,
            {
                **headers,
                "Content-Length": str(len(part)),
                "Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}",
            },
        )

    # Large files: no account is asked for here, since addresses of the real ones are signed.

    def _large_file(self) -> _Answer:
        repo = self.hub.repos.get(self.named["repo"])
        oid = self.named["oid"]
        if repo is None:
            return _Answer(403)
        if self.stage == "upload":
            if hashlib.sha256(self.body).hexdigest() != oid:
                return _Answer(400, b"the checksum does not match")
            with self.hub.locked():
                repo.large[oid] = self.body
            return _Answer(200, b"", {"ETag": f'"{oid}"'})
        if oid not in repo.large:
            return _Answer(404)
        return self._ranged(repo.large[oid], {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"})

    # Writing

    def _create(self, account: Account | None) -> _Answer:
        asked = json.loads(self.body)
        owner = asked.get("organization") or (account.name if account else "")
        name = f"{owner}/{asked['name']}"
        self._may_write(account, name)
        with self.hub.locked():
            if name in self.hub.repos:
                return _error(409, "You already created this dataset repo")
            private = asked.get("private", False) or asked.get("visibility") == "private"
            self.hub.add(name, {}, private=bool(private))
        return _json({"url": f"{self.hub.url}/datasets/{name}", "name": name, "id": "0" * 24})

    def _preupload(self, repo: Repo) -> _Answer:
        with self.hub.locked():
            tree = self._at(repo).tree
        files = []
        for file in json.loads(self.body)["files"]:
            here = tree.get(file["path"])
            sample = base64.b64decode(file["sample"])
            mode = "lfs" if _large(file["path"], file["size"], sample) else "regular"
            files.append(
                {
                    "path": file["path"],
                    "uploadMode": mode,
                    "shouldIgnore": False,
                    **({"oid": here.oid} if here is not None else {}),
                }
            )
        return _json({"files": files})

    def _batch(self, repo: Repo) -> _Answer:
        asked = json.loads(self.body)
        if "basic" not in asked["transfers"]:
            return _error(422, "no transfer in common")
        objects = []
        with self.hub.locked():
            for wanted in asked["objects"]:
                answer: dict[str, Any] = {"oid": wanted["oid"], "size": wanted["size"], "authenticated": True}
                if wanted["oid"] not in repo.large:
                    answer["actions"] = {
                        "upload": {"href": f"{self.hub.large_url}/large/{repo.name}/{wanted['oid']}"},
                        "verify": {"href": f"{self.hub.url}/api/datasets/{repo.name}/verify"},
                    }
                objects.append(answer)
        return _json({"transfer": "basic", "objects": objects})

    def _verify(self, repo: Repo) -> _Answer:
        asked = json.loads(self.body)
        data = repo.large.get(asked["oid"])
        return _json({}) if data is not None and len(data) == asked["size"] else _error(404, "no such object")

    def _commit(self, repo: Repo) -> _Answer:
        self.hub.arrived(repo.name)
        lines = [json.loads(line) for line in self.body.splitlines() if line.strip()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        branch = self.named["revision"]
        with self.hub.locked():
            if branch not in repo.branches:
                return _error(404, f"Invalid rev id: {branch}", "RevisionNotFound")
            if header.get("parentCommit") not in (None, repo.branches[branch]):
                return _error(412, "A commit has happened since. Please refresh and try again.")
            tree = dict(repo.head(branch).tree)
            for line in lines:
                self._apply(repo, tree, line["key"], line["value"])
            made = repo.put(tree, header["summary"], branch)
        url = f"{self.hub.url}/datasets/{repo.name}/commit/{made.id}"
        return _json({"success": True, "commitOid": made.id, "commitUrl": url, "hookOutput": ""})

    def _apply(self, repo: Repo, tree: dict[str, Blob], key: str, value: dict[str, Any]) -> None:
        path = value.get("path", "")
        if key == "file":
            tree[path] = Blob(base64.b64decode(value["content"]), False)
        elif key == "lfsFile":
            data = repo.large.get(value["oid"])
            if data is None:
                raise _error(400, f"LFS pointer pointed to a file that does not exist: {path}")
            tree[path] = Blob(data, True)
        elif key == "deletedFile":
            if path not in tree:
                raise _error(404, f"A file with this name doesn't exist: {quote(path)}", "EntryNotFound")
            del tree[path]
        elif key == "deletedFolder":
            for inside in [at for at in tree if at.startswith(path.rstrip("/") + "/")]:
                del tree[inside]


def _entry(path: str, blob: Blob) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "file", "oid": blob.git, "size": len(blob.data), "path": path}
    if blob.large:
        found["lfs"] = {"oid": blob.oid, "size": len(blob.data), "pointerSize": 130}
    return found
