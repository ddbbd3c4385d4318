"""The kinds of records in a rollout that hold nobody's words, and the wrappers that nobody said."""

from __future__ import annotations

import re
from typing import Final

#: Envelope types that carry no conversation, with the reason under which they are counted.
NOISE: Final[dict[str, str]] = {
    "world_state": "state of the program",
    "token_usage_record": "usage",
    "security_risk_score": "state of the program",
    "dynamic_tools_updated": "tool definitions",
    "id_allocation": "state of the program",
    "inter_agent_communication": "repeats an item",
    "inter_agent_communication_metadata": "state of the program",
    "realtime_item": "state of the program",
    "state": "state of the program",
    "ghost_snapshot": "state of the program",
}

#: Types of response items that carry no conversation.
NOISE_ITEMS: Final[dict[str, str]] = {
    "ghost_snapshot": "state of the program",
    "compaction": "encrypted",
    "compaction_summary": "encrypted",
    "compaction_trigger": "state of the program",
    "context_compaction": "encrypted",
    "configuration_update": "state of the program",
    "additional_tools": "tool definitions",
    "tool_schema": "tool definitions",
    "tool_search_output": "tool definitions",
    "image_generation_call": "image",
    "other": "state of the program",
}

#: Events that repeat an item: items are recorded twice, as response items and as events.
_REPEATS: Final = re.compile(
    "exec_command_.*|terminal_interaction|patch_apply_.*|mcp_tool_call_.*|web_search_(?:begin|end)"
    "|image_generation_(?:begin|end)|view_image_tool_call|dynamic_tool_call_.*|raw_response_item"
    "|item_(?:started|completed)|collab_.*|sub_agent_activity|turn_diff|plan_(?:update|delta)|.*_delta"
)
#: Events about the program: its progress, its settings, what it asks and offers.
_STATE: Final = re.compile(
    "token_count|(?:task|turn)_(?:started|completed?|aborted)|context_compacted|agent_reasoning_section_break"
    "|session_configured|conversation_path|thread_.*|mcp_startup_.*|mcp_list_tools_response|list_.*_response"
    "|skills_update_available|remote_skill_downloaded|get_history_entry_response|background_event"
    "|undo_(?:started|completed)|(?:entered|exited)_review_mode|shutdown_complete|hook_(?:started|completed)"
    "|model_.*|.*_approval_request|elicitation_request|request_permissions|request_user_input|guardian_.*"
    "|realtime_.*|shared_reads_updated|error|stream_error|warning|deprecation_notice"
)


def event_reason(name: str) -> str | None:
    """Why an event of a type is not indexed, or None for a type that is not known."""
    if _REPEATS.fullmatch(name):
        return "repeats an item"
    return "state of the program" if _STATE.fullmatch(name) else None


#: What the program wraps in tags and sends in the user's name.
_TAGS: Final = (
    "environment_context|environments_instructions|user_instructions|INSTRUCTIONS|user_shell_command|"
    "hook_prompt|skill|skills|skills_instructions|plugins_instructions|recommended_plugins|"
    "subagent_notification|turn_aborted|permissions|collaboration_mode|multi_agent_mode|multi_agent_role|"
    "personality_spec|model_switch|model_instructions|user_action|context_window|context_window_reminder|"
    "context_window_guidance|token_budget|rollout_budget|current_time_reminder|startup_context|"
    "apps_instructions|managed_developer_instructions|user_verification_notice|heartbeat|git_attribution|"
    "image_resize_notice|content_filter_guidance|thread_network_requirements|codex_delegation"
)
_BLOCK: Final = re.compile(rf"\s*<(?P<tag>{_TAGS})(?:[ :][^>]*)?>.*?</(?P=tag)(?: [^>]*)?>\s*", re.DOTALL)
_AGENTS_FILE: Final = re.compile(r"\s*# AGENTS\.md instructions(?: for [^\n]*)?\n\s*(?=<INSTRUCTIONS>)")
_AGENTS_BARE: Final = re.compile(r"\s*# AGENTS\.md instructions(?: for [^\n]*)?(?:\n|\Z)")
_IMAGE_LABEL: Final = re.compile(r"\s*(?:<image\b[^>]*>|</image>)\s*")
_IDE_CONTEXT: Final = "# Context from my IDE setup:"
_REQUEST_HEAD: Final = "## My request for Codex:"
_REQUEST: Final = re.compile(rf"(?:\A|\n)\s*{_REQUEST_HEAD}[ \t]*\n")


def own_words(text: str) -> tuple[str, str]:
    """What the user said of a text in the user's name, and what it else was (a reason), if anything.

    Only whole blocks at the beginning or the end are taken away; a sentence that mentions a tag stays.
    """
    if _IMAGE_LABEL.fullmatch(text):
        return "", "image"
    words, reason = text, ""
    while True:
        agents = _AGENTS_FILE.match(words)
        if agents is not None:
            words = words[agents.end() :]
            reason = reason or "instructions file"
        block = _BLOCK.match(words)
        if block is not None:
            words = words[block.end() :]
            reason = reason or _REASONS.get(block["tag"], "written by the program")
        elif agents is None:
            break
    if _AGENTS_BARE.match(words):
        return "", "instructions file"
    request, why = request_of(words)
    return request, reason or why


def request_of(text: str) -> tuple[str, str]:
    """What was typed in an editor, behind the list of open files that the extension puts before it."""
    if not text.lstrip().startswith((_IDE_CONTEXT, _REQUEST_HEAD)):
        return text, ""
    found = _REQUEST.search(text)
    if found is None:
        return text, ""
    return text[found.end() :], "editor context" if text[: found.start()].strip() else ""


_REASONS: Final[dict[str, str]] = {
    "environment_context": "environment",
    "user_instructions": "instructions file",
    "INSTRUCTIONS": "instructions file",
    "user_shell_command": "command run by the user",
    "hook_prompt": "hook",
    "skill": "skill text",
    "skills": "skill text",
    "skills_instructions": "skill text",
    "subagent_notification": "notice from a subagent",
    "turn_aborted": "notice of an interruption",
}
