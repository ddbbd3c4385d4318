"""A home with the history of an agent in checkouts that are made for it, and `funes` run there as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from memory_support import store, transcript

from funes_mcp.home import FunesHome


def uuid(name: str) -> str:
    """A session's or a message's id that looks as the agents' do."""
    return str(uuid5(NAMESPACE_URL, name))


def stored(home: FunesHome, repo: str, **sessions: Sequence[str]) -> None:
    """Put sessions into a memory directly: their names (see `uuid`), and what was said in them in turn."""
    files = []
    for name, words in sessions.items():
        file = transcript(uuid(name))
        file.info = replace(file.info, repo=repo)
        for number, text in enumerate(words):
            file.say(uuid(f"{name}/{number}"), text, role=("user", "assistant")[number % 2])
        files.append(file)
    store(home.memory, *files)


class History:
    """Sessions of Claude Code below a home folder.

    Attributes:
        home: The person's home folder; funes keeps its files in `.funes` there.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLAUDE", "CODEX", "HERMES", "PI_", "FUNES"))}
        kept = {k: v for k, v in kept.items() if not k.startswith(("HF_", "HUGGING"))}
        self.environ = {
            **kept,
            "HOME": str(home),
            "FUNES_HOME": str(home / ".funes"),
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "HF_HOME": str(home / "hf"),
            "PYTHONUTF8": "1",
            "TERM": "xterm-256color",
        }
        self._said: dict[str, int] = {}

    def checkout(self, name: str, *remotes: str) -> Path:
        """A folder that git would take for a checkout with these remotes."""
        folder = self.home / name
        (folder / ".git").mkdir(parents=True)
        config = "".join(f'[remote "r{n}"]\n\turl = {url}\n' for n, url in enumerate(remotes))
        (folder / ".git" / "config").write_text(f"[core]\n\tbare = false\n{config}")
        return folder

    def say(self, session: str, cwd: Path, *words: str) -> None:
        """Go on with a session: the person and the agent speak in turn."""
        file = self.home / ".claude" / "projects" / "p" / f"{uuid(session)}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as out:
            for text in words:
                number = self._said.get(session, 0)
                self._said[session] = number + 1
                role = ("user", "assistant")[number % 2]
                record = {
                    "type": role,
                    "uuid": uuid(f"{session}/{number}"),
                    "parentUuid": uuid(f"{session}/{number - 1}") if number else None,
                    "sessionId": uuid(session),
                    "timestamp": f"2026-03-{1 + number // 60:02d}T09:{number % 60:02d}:00.000Z",
                    "cwd": str(cwd),
                    "message": {"role": role, "content": [{"type": "text", "text": text}]},
                }
                if role == "assistant":
                    record["message"]["id"] = f"msg_{session}_{number}"  # type: ignore[index]
                out.write(json.dumps(record) + "\n")

    def run(self, *arguments: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run `funes` off a terminal."""
        done = subprocess.run(
            [sys.executable, "-m", "funes_mcp", *arguments],
            env=self.environ,
            cwd=cwd or self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        return done
