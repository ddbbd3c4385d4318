"""`funes hook AGENT EVENT`: what an agent starts at the end of a turn. It leaves word for the worker and returns.

This is on the agent's path, so nothing but small modules of the standard library is imported, standard input is
never waited for to its end, nothing is printed (agents read what hooks print), and the exit code is always 0.
"""

from __future__ import annotations

import os
import sys
import time

NAME_OF_PROGRAM = "funes"

#: Set in the environment of agents that funes itself starts: their hooks do nothing.
GUARD = "FUNES_NO_HOOKS"

#: Seconds to wait for the first byte on standard input, for more bytes after some came, and in all.
FIRST_BYTE_S = 0.04
NEXT_BYTE_S = 0.01
READ_S = 0.06

#: Bytes of the payload that are looked at. What is asked for stands at its beginning.
PAYLOAD_BYTES = 256 * 1024

#: After this many seconds the hook gives up, wherever it is. Only a hanging disk gets this far.
GIVE_UP_S = 2.0

#: Words left for the worker are refused beyond this number: something is wrong with the worker then.
MOST_WAITING = 500

#: Events at which a session starts: everything that was missed is caught up.
_STARTS = frozenset({"SessionStart", "session_start", "on_session_start"})

_PATH_KEYS = ("transcript_path", "agent_transcript_path", "session_file")


def main(argv: list[str]) -> int:
    """Run a hook.

    Args:
        argv: `AGENT EVENT [--home DIR] [--memory LABEL]`. What is not understood is passed over.

    Returns:
        0, whatever happens.
    """
    try:
        if os.environ.get(GUARD, "").strip() in ("", "0"):
            _give_up_later()
            os.umask(0o077)
            _run(argv)
    except BaseException:
        pass
    return 0


def _run(argv: list[str]) -> None:
    words = []
    options = {"--home": "", "--memory": ""}
    rest = iter(argv)
    for word in rest:
        if word in options:
            options[word] = next(rest, "")
        else:
            words.append(word)
    agent, event = words[0], words[1]
    home = home_folder(options["--home"])
    payload = _payload(sys.stdin.fileno() if sys.stdin else -1)
    leave_word(home, agent, event, payload, options["--memory"])
    if not worker_waits(home):
        _start_worker(home)


def home_folder(named: str) -> str:
    """The home folder as `FunesHome.from_environ` finds it; `named` comes before the environment."""
    named = named.strip() or os.environ.get("FUNES_HOME", "").strip()
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return os.path.join(os.path.abspath(os.environ.get("HOME", "").strip() or os.path.expanduser("~")), ".funes")


def _payload(descriptor: int) -> bytes:
    """What stands on standard input, without waiting for it to be closed."""
    import select

    if descriptor < 0 or os.isatty(descriptor):
        return b""
    chunks: list[bytes] = []
    size = 0
    deadline = time.monotonic() + READ_S
    wait = FIRST_BYTE_S
    while size < PAYLOAD_BYTES:
        left = min(wait, deadline - time.monotonic())
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            break
        chunk = os.read(descriptor, 65536)
        if not chunk:
            break
        chunks.append(chunk)
        size += len(chunk)
        if chunk.rstrip().endswith(b"}") and _object(b"".join(chunks)) is not None:
            break
        wait = NEXT_BYTE_S
    return b"".join(chunks)


def _object(data: bytes) -> dict[str, object] | None:
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def transcripts(payload: bytes) -> list[str]:
    """The transcripts that a payload names, also when its end is missing."""
    value = _object(payload)
    if value is not None:
        found = [value.get(key) for key in _PATH_KEYS]
    else:
        import json
        import re

        text = payload.decode("utf-8", "replace")
        found = []
        for key in _PATH_KEYS:
            match = re.search(rf'"{key}"\s*:\s*("(?:[^"\\]|\\.)*")', text)
            found.append(json.loads(match[1]) if match else None)
    return [path for path in found if isinstance(path, str) and os.path.isabs(path)]


def leave_word(home: str, agent: str, event: str, payload: bytes, memory: str) -> None:
    """Write down what there is to index: one small file, replaced when the same word is left again."""
    import json
    from binascii import crc32

    folder = os.path.join(home, "hooks", "waiting")
    for made in (home, os.path.dirname(folder), folder):
        if not os.path.isdir(made):
            os.makedirs(made, mode=0o700, exist_ok=True)
    paths = [] if event in _STARTS else transcripts(payload)
    word = {"agent": agent, "event": event, "paths": paths, "memory": memory, "at": time.time()}
    key = "\0".join([agent, event, memory, *paths]).encode("utf-8", "surrogateescape")
    name = f"{crc32(key):08x}{crc32(key[::-1]):08x}.json"
    if len(os.listdir(folder)) > MOST_WAITING and not os.path.exists(os.path.join(folder, name)):
        return
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, json.dumps(word).encode())
    finally:
        os.close(descriptor)
    os.replace(temporary, os.path.join(folder, name))


def worker_waits(home: str) -> bool:
    """Whether a worker is running. It looks for new words once more after it let go of this lock."""
    try:
        import fcntl
    except ImportError:  # Windows: a second worker finds the lock taken and ends
        return False
    try:
        descriptor = os.open(os.path.join(home, "hooks", "worker.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _start_worker(home: str) -> None:
    """Start the worker in a session of its own, with nothing of the agent's but its environment."""
    command = [sys.executable, "-m", "funes_mcp.worker", "--home", home]
    if not hasattr(os, "fork"):
        import subprocess

        flags = 0x00000008 | 0x00000200  # DETACHED_PROCESS, CREATE_NEW_PROCESS_GROUP
        subprocess.Popen(command, cwd=home, creationflags=flags, close_fds=True, stdin=subprocess.DEVNULL)
        return
    if os.fork() == 0:
        try:
            os.setsid()
            os.chdir(home)  # `-m` looks for modules in the working folder, which must not be the user's project
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.closerange(3, 1024)
            import signal

            signal.setitimer(signal.ITIMER_REAL, 0)
            os.execv(sys.executable, command)
        finally:
            os._exit(0)


def _give_up_later() -> None:
    import signal

    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, GIVE_UP_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
