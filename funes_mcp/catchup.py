"""Taking in what the hooks missed: looked for before a recall, done by the hooks' worker.

A turn is missed when an agent was killed, when its hook was switched off or failed, or when it has none. The
transcript of the session that asks is always a little ahead of the memory and is not waited for.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from funes_mcp import hooks
from funes_mcp.home import FunesHome
from funes_mcp.models import Service

#: A change that is older than this was missed: hooks are done within a few seconds of the end of a turn.
MISSED_S = 30.0

#: How often is looked, at most.
EVERY_S = 20.0

#: How long a recall waits for what was missed. The worker needs about two seconds for a few turns.
WAIT_S = 4.0


class CatchUp:
    """Looks for missed turns, now and then, and has them indexed.

    Args:
        start: Starts a worker for a home.
        clock: Seconds, never going back.
    """

    def __init__(
        self,
        home: FunesHome,
        service: Service,
        start: Callable[[FunesHome], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home
        self._service = service
        self._start = start or start_worker
        self._clock = clock
        self._next = clock()

    def run(self, wait: float = WAIT_S) -> None:
        """Have what was missed indexed, and wait for it a little. Never raises."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + EVERY_S
        try:
            behind = self._service.behind(MISSED_S)
            if not behind:
                return
            root = str(self._home.root)
            for agent in behind:
                hooks.leave_word(root, agent, "catch-up", b"", "")
            if not hooks.worker_waits(root):
                self._start(self._home)
            deadline = self._clock() + wait
            while self._clock() < deadline:
                time.sleep(0.05)
                if not self._service.behind(MISSED_S):
                    return
        except Exception:  # the recall goes on with what there is
            return


def start_worker(home: FunesHome) -> None:
    """Start the hooks' worker on its own. Raises `OSError`."""
    subprocess.Popen(
        [sys.executable, "-m", "funes_mcp.worker", "--home", str(home.root)],
        cwd=home.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
