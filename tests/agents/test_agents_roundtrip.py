"""Each real agent, from `add` to `remove`: recall on the first turn, the turn indexed by the hook, and all gone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from agents.drivers import World

pytestmark = pytest.mark.agents

PASSAGE = "We settled on zstd level 7 for the zebra archive, because level 9 doubled the build."


@pytest.mark.parametrize(
    ("name", "package"),
    [("claude", ""), ("codex", ""), ("pi", ""), ("pi", "pi-old"), ("hermes", "")],
    ids=["claude", "codex", "pi", "pi-0.73", "hermes"],
)
def test_from_add_to_remove(world: Callable[..., World], name: str, package: str) -> None:
    here = world(name, package)
    here.run(f"Which compression does the zebra archive get? [[text:{PASSAGE}]]")
    before = {path: path.read_bytes() for path in configs(here)}
    here.add()
    assert here.add().count("\n") >= 1  # twice is once: checked below by what the model is offered

    # The model calls recall on the first turn, and receives the passage as plain text.
    since = time.time()
    sent = here.run(
        'What did we choose for the zebra archive? [[tool:recall$ {"query": "zebra archive compression"}]]'
        "[[text:Quokkas were told about it.]]"
    )
    first = next(request for request in sent if request.tools)
    assert [tool for tool in first.tools if tool.endswith("recall")] == [here.TOOL]
    results = [text for kind, text in sent[-1].events if kind == "result"]
    assert results, "the model was given no result"
    assert PASSAGE in results[-1]
    assert '{"result"' not in results[-1] or name == "hermes"
    assert "→ get " in results[-1]

    # The hook at the turn's end makes the new turn recallable, and our own tool's result is not stored.
    here.hook_done(here.TURN_HOOK, since)
    health = here.root / "hooks/health" / f"{name} {here.TURN_HOOK}.json"
    print(f"{name} {package}: stored {health.stat().st_mtime - sent[-1].at:.1f} s after the model's last answer")
    here.idle()
    assert "Quokkas were told about it." in here.funes("recall", "Quokkas were told")
    assert len(here.rows("We settled on zstd")) == len({row["id"] for row in here.rows("We settled on zstd")})
    assert not [row for row in here.rows("→ get") if row["role"] != "assistant"], "our own result was stored"

    # After `remove` the next run has no tool of ours and no hook.
    here.funes("remove", name)
    for path, content in before.items():
        assert path.read_bytes() == content, path
    worked = {hook: value for hook, value in here.health().items()}
    [*sent] = here.run("Anything left? [[text:Nothing is left.]]")
    assert sent
    assert not [tool for request in sent for tool in request.tools if "funes" in tool]
    time.sleep(1.0)
    assert here.health() == worked
    assert not here.rows("Nothing is left.")
    here.idle()


@pytest.mark.parametrize("name", ["claude", "codex", "pi", "hermes"])
def test_a_home_named_at_add_reaches_server_and_hooks(world: Callable[..., World], name: str) -> None:
    """Codex and Hermes give their servers a filtered environment; here no agent has `FUNES_HOME` in its own."""
    here = world(name)
    here.name_home()
    here.run(f"Which compression does the zebra archive get? [[text:{PASSAGE}]]")
    here.add()
    since = time.time()
    sent = here.run('Again? [[tool:recall$ {"query": "zebra archive compression"}]][[text:Dugongs were told.]]')
    assert PASSAGE in [text for kind, text in sent[-1].events if kind == "result"][-1]
    here.hook_done(here.TURN_HOOK, since)
    assert here.rows("Dugongs were told")
    assert not (here.home / ".funes").exists()
    here.idle()


def configs(here: World) -> list:  # type: ignore[type-arg]
    """The files that are the user's alone: agents write to others themselves."""
    names = (".codex/config.toml", ".hermes/config.yaml", ".pi/agent/models.json")
    return [here.home / name for name in names if (here.home / name).exists()]
