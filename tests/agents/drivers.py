"""Runs of the real agents in a home of their own, against the scripted model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mock_llm import Model, Request

from agents.installs import programs

T = TypeVar("T")

FUNES = Path(sys.executable).parent / "funes"

#: Seconds after which something that should happen within a few is given up. Nothing is asserted about time.
PATIENCE = 90.0


def wait_for(what: Callable[[], T], patience: float = PATIENCE) -> T:
    """Poll until `what` gives something true; its last value when it never does."""
    deadline = time.monotonic() + patience
    while not (value := what()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return value


def remembered_session(home: Path, question: str, answer: str) -> Path:
    """Write a transcript of Claude Code's with one question and its answer below `home`; where it is."""
    transcript = home / "old" / "0a1b2c3d-0000-4000-8000-000000000001.jsonl"
    transcript.parent.mkdir()
    rows = [("user", question), ("assistant", answer)]
    transcript.write_text(
        "".join(
            json.dumps(
                {
                    "type": role,
                    "uuid": f"0000000{at}-0000-4000-8000-000000000000",
                    "sessionId": transcript.stem,
                    "cwd": "/home/ada/zoo",
                    "timestamp": f"2026-03-11T09:04:0{at}.000Z",
                    "message": {"role": role, "content": [{"type": "text", "text": text}]},
                }
            )
            + "\n"
            for at, (role, text) in enumerate(rows)
        )
    )
    return transcript


@dataclass
class World:
    """One home folder, one project and one model; and what an agent does in it."""

    folder: Path
    model: Model
    name: str = ""
    with_rules: Callable[[Path], None] | None = field(default=None, kw_only=True)
    package: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    #: Whether our home is named by FUNES_HOME, which the agent itself is not told.
    named_home: bool = False

    #: What an agent calls our tool, and the hooks of a finished turn and of a finished session.
    TOOL = "mcp__funes__recall"
    TURN_HOOK = "Stop"
    END_HOOK = "SessionEnd"

    def __post_init__(self) -> None:
        self.home = self.folder / "hömé dir"
        self.project = self.folder / "widget"
        self.home.mkdir()
        self.project.mkdir()
        self.root = self.home / ".funes"  # our own home
        self.program = self.folder / "prög ram" / "funes"  # as a tool manager's link would stand
        self.program.parent.mkdir()
        self.program.symlink_to(FUNES)
        git = ["git", "-c", "user.email=a@example.com", "-c", "user.name=a"]
        for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
            subprocess.run([*git, *command], cwd=self.project, check=True, env={"PATH": os.environ["PATH"]})
        path = [programs("node"), programs(self.package or self.name), "/usr/local/bin", "/usr/bin", "/bin"]
        self.environ = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join(str(part) for part in path),
            "USER": "tester",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            **self.environ,
        }
        self.configure()

    # -- each agent's own --------------------------------------------------------------------------------

    def configure(self) -> None:
        """Point the agent at the model."""

    def command(self, prompt: str, extra: Sequence[str]) -> list[str]:
        """The command line of one run."""
        raise NotImplementedError

    # -- what tests do -----------------------------------------------------------------------------------

    def name_home(self) -> None:
        """From now on `FUNES_HOME` names our home, for our own command line only."""
        self.named_home = True
        self.root = self.folder / "our hömé"

    def run(self, prompt: str, *extra: str, check: bool = True) -> list[Request]:
        """Have the agent answer a prompt; what the model was sent meanwhile."""
        seen = len(self.model.requests)
        done = subprocess.run(
            self.command(prompt, extra),
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{self.name}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        self.output = done.stdout
        return self.model.requests[seen:]

    def funes(self, *arguments: str, check: bool = True) -> str:
        """Run our command line in this world."""
        done = subprocess.run(
            [str(self.program), *arguments],
            cwd=self.project,
            env={**self.environ, "FUNES_HOME": str(self.root)} if self.named_home else self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0 or not check, f"funes {arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def add(self) -> str:
        if self.with_rules is not None:
            self.with_rules(self.root)
        return self.funes("add", self.name, "--yes", "--trust-hooks")

    def health(self) -> dict[str, dict[str, str]]:
        """What the hooks' worker noted, by hook."""
        found = {}
        for path in (self.root / "hooks/health").glob("*.json"):
            value = json.loads(path.read_bytes())
            found[value["name"]] = value
        return found

    def hook_done(self, event: str, since: float) -> dict[str, str]:
        """The health of a hook once it worked after `since` (seconds since the epoch)."""

        def look() -> dict[str, str] | None:
            path = self.root / "hooks/health" / f"{self.name} {event}.json"
            if path.exists() and path.stat().st_mtime >= since:
                return dict(json.loads(path.read_bytes()))
            return None

        health = wait_for(look)
        assert health, f"the hook {event} of {self.name} never worked; {self.worker_log()}"
        assert "failed" not in health, health
        return health

    def worker_log(self) -> str:
        log = self.root / "logs/worker.log"
        return log.read_text()[-3000:] if log.exists() else "no worker log"

    def idle(self) -> None:
        """Wait until no worker has anything left to do."""
        waiting = self.root / "hooks/waiting"
        wait_for(lambda: not waiting.exists() or not any(waiting.iterdir()))
        assert not waiting.exists() or not any(waiting.iterdir()), self.worker_log()

    def rows(self, marker: str) -> list[dict[str, Any]]:
        """The stored passages that hold a marker."""
        import lancedb

        table = lancedb.connect(self.root / "memory").open_table("chunks")
        rows: list[dict[str, Any]] = table.search().where(f"text LIKE '%{marker}%'").limit(1000).to_list()
        return rows

    def said(self, marker: str) -> list[dict[str, Any]]:
        """The stored passages of the user's that hold a marker."""
        return [row for row in self.rows(marker) if row["role"] == "user" and row["block_type"] == "text"]


class Claude(World):
    TOOL = "mcp__funes__recall"

    def command(self, prompt: str, extra: Sequence[str]) -> list[str]:
        return ["claude", "-p", prompt, *extra]

    def configure(self) -> None:
        self.environ |= {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.model.port}",
            "ANTHROPIC_API_KEY": "sk-mock-000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def sessions(self) -> list[str]:
        """Session ids, oldest first."""
        paths = sorted((self.home / ".claude/projects").glob("*/*.jsonl"), key=lambda p: p.stat().st_mtime)
        return [path.stem for path in paths]


class Codex(World):
    def command(self, prompt: str, extra: Sequence[str]) -> list[str]:
        return ["codex", "exec", *extra, prompt]

    def configure(self) -> None:
        self.environ["MOCK_API_KEY"] = "sk-mock"
        folder = self.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(
            '# mine\nmodel = "mock-model"\nmodel_provider = "mock"\napproval_policy = "never"\n\n'
            '[model_providers.mock]\nname = "Mock"\n'
            f'base_url = "http://127.0.0.1:{self.model.port}/v1"\nwire_api = "responses"\n'
            'env_key = "MOCK_API_KEY"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
        )


class Pi(World):
    TURN_HOOK = "agent_settled"
    END_HOOK = "session_shutdown"

    def command(self, prompt: str, extra: Sequence[str]) -> list[str]:
        return ["pi", "-p", "--provider", "mock", "--model", "mock-model", *extra, prompt]

    def configure(self) -> None:
        self.environ |= {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
        folder = self.home / ".pi/agent"
        folder.mkdir(parents=True)
        model = {"id": "mock-model", "name": "Mock", "reasoning": True, "contextWindow": 128000, "maxTokens": 4096}
        provider = {
            "name": "Mock",
            "baseUrl": f"http://127.0.0.1:{self.model.port}/v1",
            "apiKey": "sk-mock",
            "api": "openai-completions",
            "models": [model],
        }
        (folder / "models.json").write_text(json.dumps({"providers": {"mock": provider}}))


class Hermes(World):
    TURN_HOOK = "post_llm_call"
    END_HOOK = "on_session_finalize"

    def command(self, prompt: str, extra: Sequence[str]) -> list[str]:
        return ["hermes", "chat", "-Q", *extra, "-q", prompt]

    def configure(self) -> None:
        folder = self.home / ".hermes"
        folder.mkdir()
        (folder / "config.yaml").write_text(
            "# mine\nmodel:\n  default: mock-model   # the scripted one\n  provider: custom\n"
            f"  base_url: http://127.0.0.1:{self.model.port}/v1\n  api_key: sk-mock\n  context_length: 131072\n"
        )


WORLDS: dict[str, type[World]] = {"claude": Claude, "codex": Codex, "pi": Pi, "hermes": Hermes}
