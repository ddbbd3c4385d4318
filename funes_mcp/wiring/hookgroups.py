"""The `hooks` table that Claude Code and Codex share: event -> groups -> handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from funes_mcp.wiring.document import look
from funes_mcp.wiring.files import ConfigText
from funes_mcp.wiring.program import is_our_hook


def our_groups(value: Any, agent: str) -> dict[str, list[int]]:
    """Positions of the groups that hold a hook of ours, by event."""
    found: dict[str, list[int]] = {}
    hooks = look(value, ["hooks"])
    for event, groups in hooks.items() if isinstance(hooks, dict) else ():
        for index, group in enumerate(groups if isinstance(groups, list) else ()):
            handlers = look(group, ["hooks"])
            if isinstance(handlers, list) and any(is_our_hook(look(h, ["command"]), agent) for h in handlers):
                found.setdefault(event, []).append(index)
    return found


def add_groups(config: ConfigText, agent: str, wanted: Mapping[str, dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Put one handler an event into the table, each in a group of its own, last.

    A handler of ours that is there already is brought up to date in place, so that the others keep their positions.

    Args:
        config: The file; its `hooks` table is edited.
        agent: Whose hooks these are.
        wanted: The handler of each event.

    Returns:
        Where each event's handler is: position of the group, position in the group.
    """
    places: dict[str, tuple[int, int]] = {}
    known = our_groups(config.value, agent)
    for event, positions in known.items():
        if event not in wanted:
            for index in reversed(positions):
                remove_group(config, agent, event, index, None)
    for event, handler in wanted.items():
        positions = known.get(event, [])
        if not positions:
            config.append(["hooks", event], {"hooks": [handler]})
            places[event] = (len(look(config.value, ["hooks", event])) - 1, 0)
            continue
        for extra in reversed(positions[1:]):
            remove_group(config, agent, event, extra, None)
        group = positions[0]
        handlers = look(config.value, ["hooks", event, group, "hooks"])
        slot = next(i for i, item in enumerate(handlers) if is_our_hook(look(item, ["command"]), agent))
        config.put(["hooks", event, group, "hooks", slot], handler)
        places[event] = (group, slot)
    return places


def remove_group(config: ConfigText, agent: str, event: str, group: int, before: Any) -> bool:
    """Take our handler out of a group, and the group when nothing else is in it. Returns whether the group went."""
    handlers = look(config.value, ["hooks", event, group, "hooks"])
    ours = [i for i, item in enumerate(handlers) if is_our_hook(look(item, ["command"]), agent)]
    if len(ours) == len(handlers):
        config.drop(["hooks", event, group], before)
        return True
    for slot in reversed(ours):
        config.drop(["hooks", event, group, "hooks", slot], before)
    return False
