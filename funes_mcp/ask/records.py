"""The lines in which an agent tells its answer."""

from __future__ import annotations

import json
from typing import Any


def record_of(line: str) -> dict[str, Any]:
    """The JSON object in a line; an empty one for anything else, which agents print between their records."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
