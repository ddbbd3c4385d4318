"""The process behind the hooks: waits for a transcript to settle, has it indexed, and remembers how that went.

One worker at a time. It takes the words that hooks left, and ends when there are none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from funes_mcp.home import FunesHome, private_folder, write_private

if TYPE_CHECKING:
    from funes_mcp.models import PushReport, PushRequest

#: Events at which a session of some agent begins or ends; none of them is a turn's. What is bound to a memory on the
#: Hub is published then.
BOUNDARIES = frozenset(
    {"SessionStart", "SessionEnd", "session_start", "session_shutdown", "on_session_start", "on_session_finalize"}
)

#: A transcript has settled when its size and time stood still for `QUIET_S`; it is waited for at most `SETTLE_S`.
#: Agents were seen to write the last message a fifth of a second after they called the hook.
QUIET_S = 0.4
SETTLE_S = 2.0

#: How often a word is tried while another process writes to the memory (each try waits a minute by itself).
TRIES_WHILE_BUSY = 5

#: Bytes at which the log is moved aside; one older log is kept.
LOG_BYTES = 256 * 1024

#: Seconds after which a word that no worker took is reported as a failure.
OVERDUE_S = 600.0

#: Memories to publish to once everything is indexed, each with the `(agent, event)` of the hooks that want it.
Due = dict[str, list[tuple[str, str]]]

#: `index(agent, path)` brings one transcript, or with None all of an agent's, into the memory.
Index = Callable[[str, "Path | None"], None]


class Busy(Exception):
    """Another process is writing to the memory."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a hook left.

    Attributes:
        paths: The transcripts it named; empty for everything of the agent's.
        at: Seconds since the epoch.
        file: Where it is kept until it is done.
        again: Whether an earlier worker ended while it was at it.
    """

    agent: str
    event: str
    paths: tuple[Path, ...]
    memory: str
    at: float
    file: Path
    again: bool


def folder_of(home: FunesHome) -> Path:
    """Where hooks and the worker keep their words and their health."""
    return home.root / "hooks"


def take(folder: Path) -> list[Word]:
    """Take all words that are waiting, and those that a worker left when it died. Unreadable ones are dropped."""
    waiting = folder / "waiting"
    words = []
    for name in sorted(_names(waiting)):
        path = waiting / name
        if name.startswith("."):
            continue
        again = name.endswith(".taken")
        if name.endswith(".again"):  # it was there when two workers died: it is not tried a third time
            word = _read(path, again=True)
            if word is not None:
                note(folder, word.agent, word.event, "the worker died twice while it was indexing")
            with suppress(OSError):
                path.unlink()
            continue
        target = path.with_suffix(".again") if again else path.with_suffix(".taken")
        try:
            os.replace(path, target)
        except OSError:
            continue
        word = _read(target, again)
        if word is None:
            with suppress(OSError):
                target.unlink()
        else:
            words.append(word)
    return words


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: Path, again: bool) -> Word | None:
    try:
        value = json.loads(path.read_bytes())
        return Word(
            agent=str(value["agent"]),
            event=str(value["event"]),
            paths=tuple(Path(str(p)) for p in value["paths"]),
            memory=str(value.get("memory", "")),
            at=float(value["at"]),
            file=path,
            again=again,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def settle(paths: Sequence[Path], quiet: float = QUIET_S, most: float = SETTLE_S) -> None:
    """Wait until the files stand still for `quiet` seconds, at most `most` seconds."""
    deadline = time.monotonic() + most
    last = _shape(paths)
    since = time.monotonic()
    while time.monotonic() - since < quiet and time.monotonic() < deadline:
        time.sleep(0.05)
        now = _shape(paths)
        if now != last:
            last, since = now, time.monotonic()


def _shape(paths: Sequence[Path]) -> list[tuple[int, int]]:
    shape = []
    for path in paths:
        try:
            stat = path.stat()
            shape.append((stat.st_size, stat.st_mtime_ns))
        except OSError:
            shape.append((-1, -1))
    return shape


def work_off(
    home: FunesHome, index: Index, settling: Callable[[Sequence[Path]], None] = settle, due: Due | None = None
) -> int:
    """Take words until there are none; one process at a time. Returns how many were taken.

    Args:
        due: What is to be published afterwards is entered here.
    """
    folder = folder_of(home)
    private_folder(folder)
    done = 0
    while True:
        before = done
        with _only_one(folder) as alone:
            if not alone:
                return done  # the other one looks again after it let go
            while words := take(folder):
                done += len(words)
                _do(folder, words, index, settling)
                _enter(words, {} if due is None else due)
        waiting = [name for name in _names(folder / "waiting") if name.endswith(".json") and name[0] != "."]
        if not waiting or done == before:
            return done


def _do(folder: Path, words: Sequence[Word], index: Index, settling: Callable[[Sequence[Path]], None]) -> None:
    settling(sorted({path for word in words for path in word.paths}))
    outcome: dict[tuple[str, Path | None], str] = {}
    for word in sorted(words, key=lambda w: not w.paths):  # a turn that just ended comes before catching up
        for path in word.paths or (None,):
            # A transcript that is not there (an agent may name one it never wrote) is no failure.
            if (word.agent, path) not in outcome and (path is None or path.exists()):
                outcome[word.agent, path] = _index(word.agent, path, index)
    for word in words:
        reasons = [outcome[word.agent, p] for p in word.paths or (None,) if outcome.get((word.agent, p))]
        note(folder, word.agent, word.event, reasons[0] if reasons else "")
        with suppress(OSError):
            word.file.unlink()


def _enter(words: Sequence[Word], due: Due) -> None:
    """Note which memories the words want to be published to: those of hooks at which a session begins or ends."""
    for word in words:
        if word.memory and word.event in BOUNDARIES:
            hooks = due.setdefault(word.memory, [])
            if (word.agent, word.event) not in hooks:
                hooks.append((word.agent, word.event))


def _index(agent: str, path: Path | None, index: Index) -> str:
    """Have it indexed; the reason when that failed, else ""."""
    for _ in range(TRIES_WHILE_BUSY):
        try:
            index(agent, path)
        except Busy:
            continue
        except Exception as error:
            print(f"{_now()} {agent} {path or 'everything'}: {type(error).__name__}: {error}", file=sys.stderr)
            return f"{type(error).__name__}: {error}"[:300]
        return ""
    return "another process was writing to the memory for too long"


@contextmanager
def _only_one(folder: Path) -> Iterator[bool]:
    """Hold the workers' lock while inside; False when another holds it. The lock ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows: several workers take turns at the memory's own lock
        yield True
        return
    descriptor = os.open(folder / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]


def note(folder: Path, agent: str, event: str, failure: str) -> None:
    """Remember how a hook's work went: when it last succeeded, when it last failed and why."""
    path = folder / "health" / f"{_safe(agent)} {_safe(event)}.json"
    health = _health(path) or {}
    health["name"] = f"{agent} {event}"
    if failure:
        health["failed"] = _now()
        health["reason"] = failure
    else:
        health["succeeded"] = _now()
    private_folder(path.parent)
    write_private(path, json.dumps(health).encode())


def _health(path: Path) -> dict[str, str] | None:
    try:
        value = json.loads(path.read_bytes())
        return {str(k): str(v) for k, v in value.items()}
    except (OSError, ValueError, AttributeError):
        return None


def hook_health(home: FunesHome) -> tuple[tuple[str, str, str], ...]:
    """`(name, last success, last failure)` of each hook that ran, RFC 3339 UTC or "".

    A failure's reason stands behind its time. A hook whose word has waited for ten minutes counts as failed: its
    worker never came. Never raises.
    """
    folder = folder_of(home)
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(_names(folder / "health")):
        health = _health(folder / "health" / name)
        if health and not name.startswith("."):
            reason = health.get("reason", "")
            failed = health.get("failed", "")
            found[health.get("name", name)] = (
                health.get("succeeded", ""),
                f"{failed} ({reason})" if failed and reason else failed,
            )
    for name in sorted(_names(folder / "waiting")):
        word = None if name.startswith(".") else _read(folder / "waiting" / name, again=False)
        if word is not None and time.time() - word.at > OVERDUE_S:
            at = datetime.fromtimestamp(word.at, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
            key = f"{word.agent} {word.event}"
            found[key] = (found.get(key, ("", ""))[0], f"{at} (its worker never finished)")
    return tuple((name, succeeded, failed) for name, (succeeded, failed) in sorted(found.items()))


def open_log(home: FunesHome) -> int:
    """A descriptor of the worker's log, moved aside when it has grown. Raises `OSError`."""
    private_folder(home.logs)
    path = home.logs / "worker.log"
    with suppress(OSError):
        if path.stat().st_size > LOG_BYTES:
            os.replace(path, path.with_suffix(".log.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def service_index(home: FunesHome) -> Index:
    """Indexing through the service, which is loaded at the first call."""
    opened: list[object] = []

    def index(agent: str, path: Path | None) -> None:
        from funes_mcp.errors import MemoryBusyError
        from funes_mcp.models import IndexRequest, Service
        from funes_mcp.service import open_service

        if not opened:
            opened.append(open_service(home, os.environ))
        service: Service = opened[0]  # type: ignore[assignment]
        try:
            report = service.index(IndexRequest(path=path, harness=agent))
            service.prepare()  # a session has begun: its first turn must not wait for it
        except MemoryBusyError as error:
            raise Busy from error
        if path is not None and report.failures:
            raise RuntimeError("; ".join(reason for _, reason in report.failures))

    return index


def main(argv: Sequence[str]) -> int:
    """`python -m funes_mcp.worker [--home DIR]`. Everything it has to say goes to the log."""
    environ = dict(os.environ)
    if len(argv) >= 2 and argv[0] == "--home":
        environ["FUNES_HOME"] = argv[1]
        os.environ["FUNES_HOME"] = argv[1]
    home = FunesHome.from_environ(environ)
    os.umask(0o077)
    try:
        log = open_log(home)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    except OSError:
        return 1
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(10)
    due: Due = {}
    work_off(home, service_index(home), due=due)
    publish(home, due)
    if deepen(home):
        publish(home, due)  # what waited for its vectors
    return 0


def publish(home: FunesHome, due: Due) -> None:
    """Publish to the memories that are due, each by itself, and remember how it went. Ends the process in time.

    The workers' lock is not held any more: whoever has words meanwhile starts another worker.
    """
    if not due:
        return
    from funes_mcp.publishing.boundary import MOST_S
    from funes_mcp.publishing.boundary import publish as publish_to

    def push(request: PushRequest) -> PushReport:
        from funes_mcp.service import open_service

        return open_service(home, os.environ).push(request)

    for memory, hooks in due.items():

        def told(failure: str, memory: str = memory, hooks: Sequence[tuple[str, str]] = tuple(hooks)) -> None:
            for agent, event in hooks:
                note(folder_of(home), agent, f"{event}, publishing to {memory}", failure)

        def give_up(told: Callable[[str], None] = told) -> None:
            try:
                told(f"it took longer than {MOST_S:.0f} s; the next session goes on with it")
            finally:
                os._exit(1)

        timer = Timer(MOST_S, give_up)
        timer.daemon = True
        timer.start()
        try:
            failure = publish_to(home, memory, push)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[:300]
        finally:
            timer.cancel()
        if failure:
            print(f"{_now()} publishing to {memory}: {failure}", file=sys.stderr)
        if failure is not None:
            told(failure[:300])


def deepen(home: FunesHome) -> bool:
    """Embed for a minute what waits for vectors, where there are deeper models. Goes to the log, whatever happens.

    True when something got a vector.
    """
    if not (home.memory / "upgrade").exists() and not (home.root / "models").exists():
        return False
    from funes_mcp.service import open_service

    try:
        service = open_service(home, os.environ)
        if not service.models.work_waits():
            return False
        if hasattr(os, "nice"):
            with suppress(OSError):
                os.nice(9)  # whatever else wants the machine comes first
        done = service.deepen()
        if done.note:
            print(f"{_now()} {done.note}", file=sys.stderr)
        return done.embedded > 0
    except Exception as error:
        print(f"{_now()} embedding: {type(error).__name__}: {error}", file=sys.stderr)
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
