"""What the hooks missed is taken in before a recall."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from funes_mcp.catchup import EVERY_S, CatchUp
from funes_mcp.home import FunesHome


class Behind:
    """A service that is behind until a worker was started."""

    def __init__(self, agents: list[str]) -> None:
        self.agents = agents
        self.asked = 0

    def behind(self, seconds: float) -> Sequence[str]:
        self.asked += 1
        return self.agents


def test_a_missed_turn_starts_the_worker_once_and_is_waited_for(tmp_path: Path) -> None:
    home = FunesHome(tmp_path)
    service: Any = Behind(["claude"])
    started = []

    def start(home: FunesHome) -> None:
        started.append(home)
        service.agents = []

    catch_up = CatchUp(home, service, start)
    catch_up.run()
    assert started == [home]
    assert len(list((tmp_path / "hooks" / "waiting").glob("*.json"))) == 1
    catch_up.run()
    assert len(started) == 1


def test_it_looks_only_now_and_then(tmp_path: Path) -> None:
    times = iter((0.0, 0.0, 0.0, 1.0, EVERY_S - 1, EVERY_S + 1, EVERY_S + 1, EVERY_S + 2))
    service: Any = Behind([])
    catch_up = CatchUp(FunesHome(tmp_path), service, lambda _: None, lambda: next(times))
    for _ in range(5):
        catch_up.run()
    assert service.asked == 2
    assert not (tmp_path / "hooks").exists()


def test_a_failure_costs_only_the_catch_up(tmp_path: Path) -> None:
    class Broken:
        def behind(self, seconds: float) -> Sequence[str]:
            raise RuntimeError("the disk is gone")

    service: Any = Broken()
    CatchUp(FunesHome(tmp_path), service, lambda _: None).run()
