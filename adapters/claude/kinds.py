"""The kinds of records in a Claude Code transcript that hold nobody's words, and why each is passed over.

Claude Code adds a kind or two a month. One that is not listed here is counted as unknown, by name, until
somebody has looked at it.
"""

from __future__ import annotations

from typing import Any, Final

STATE: Final = "state of the program"
NOTICE: Final = "notice of the program"
REPEAT: Final = "repeats a message"
TITLE: Final = "title of the session"
CONTEXT: Final = "context put in by the program"
REQUEST: Final = "copy of a request to the model"
USAGE: Final = "usage"
HOOK: Final = "hook report"

#: Top-level types besides `user` and `assistant`.
TYPES: Final[dict[str, str]] = {
    "agent-color": STATE,
    "agent-name": STATE,
    "agent-setting": STATE,
    "ai-title": TITLE,
    "api-request": REQUEST,
    "api-request-blob": REQUEST,
    "api-request-shape": REQUEST,
    "atis-latch": STATE,
    "attribution-snapshot": STATE,
    "auth_status": STATE,
    "away_summary": NOTICE,
    "bridge-session": STATE,
    "content-replacement": STATE,
    "context-collapse-commit": STATE,
    "context-collapse-snapshot": STATE,
    "control_cancel_request": STATE,
    "control_request": STATE,
    "control_response": STATE,
    "cost-state": USAGE,
    "custom-title": TITLE,
    "file-history-delta": STATE,
    "file-history-snapshot": STATE,
    "fork-context-ref": STATE,
    "invoked-skills": STATE,
    "keep_alive": STATE,
    "last-prompt": REPEAT,
    "marble-origami-commit": STATE,
    "marble-origami-snapshot": STATE,
    "mode": STATE,
    "permission-mode": STATE,
    "pr-link": NOTICE,
    "progress": REPEAT,
    "prompt_suggestion": NOTICE,
    "rate_limit_event": USAGE,
    "relocated": STATE,
    "result": REPEAT,
    "saved_hook_context": CONTEXT,
    "speculation-accept": STATE,
    "sdk-session": STATE,
    "session-state": STATE,
    "started": STATE,
    "stream_event": REPEAT,
    "streamlined_text": REPEAT,
    "streamlined_tool_use_summary": REPEAT,
    "summary": TITLE,
    "tag": STATE,
    "task-summary": NOTICE,
    "tombstone": STATE,
    "tool_progress": REPEAT,
    "tool_use_summary": REPEAT,
    "tools-used": STATE,
    "ultraplan": STATE,
    "worktree-state": STATE,
}

#: `system` records by `subtype`.
SYSTEM: Final[dict[str, str]] = {
    "agents_killed": NOTICE,
    "api_error": "failed request",
    "api_metrics": USAGE,
    "api_retry": "failed request",
    "away_summary": NOTICE,
    "bridge_state": STATE,
    "bridge_status": STATE,
    "compact_boundary": "mark of a compaction",
    "elicitation_complete": STATE,
    "file_snapshot": STATE,
    "files_persisted": STATE,
    "hook_progress": HOOK,
    "hook_response": HOOK,
    "hook_started": HOOK,
    "informational": NOTICE,
    "init": STATE,
    "local_command": "output of a slash command",
    "local_command_output": "output of a slash command",
    "memory_saved": NOTICE,
    "microcompact_boundary": "mark of a compaction",
    "model_refusal_fallback": NOTICE,
    "permission_denied": NOTICE,
    "permission_retry": STATE,
    "post_turn_summary": NOTICE,
    "scheduled_task_fire": NOTICE,
    "session_state_changed": STATE,
    "snapshot_boundary": STATE,
    "status": STATE,
    "stop_hook_summary": HOOK,
    "task_notification": NOTICE,
    "task_progress": NOTICE,
    "task_started": NOTICE,
    "task_updated": NOTICE,
    "thinking": STATE,
    "turn_duration": USAGE,
}

_HOOK_ATTACHMENTS: Final = frozenset({"async_hook_response"})
#: Attachments that repeat what stands elsewhere, or carry a file that the user named.
ATTACHMENTS: Final[dict[str, str]] = {
    "diagnostics": "diagnostics of the editor",
    "edited_text_file": "change of a file",
    "edited_image_file": "image",
    "file": "file shown to the agent",
    "already_read_file": "file shown to the agent",
    "compact_file_reference": "file shown to the agent",
    "pdf_reference": "file shown to the agent",
    "directory": "file shown to the agent",
    "task_status": NOTICE,
    "teammate_mailbox": "message between agents",
}


def attachment_reason(name: str) -> str:
    """Why an attachment is passed over. All but prompts are the program's: a new kind is no riddle."""
    if name.startswith("hook_") or name in _HOOK_ATTACHMENTS:
        return HOOK
    return ATTACHMENTS.get(name, CONTEXT)


def noise_reason(kind: str, record: dict[str, Any]) -> str | None:
    """Why a record that is no message is passed over, or None for a kind that is not known."""
    if kind == "system":
        subtype = record.get("subtype")
        if subtype is None and "message" in record:
            return "system prompt"
        return SYSTEM.get(subtype) if isinstance(subtype, str) else NOTICE
    return TYPES.get(kind)
