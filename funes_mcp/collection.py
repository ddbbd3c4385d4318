"""How often Python looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Objects made since the last search that start another. A pass holds some hundred thousand at once and leaves few
#: in cycles; with 700, as Python has it, and even 100,000, it searches them over and over: some percent of its time.
_SELDOM: Final = 1_000_000


@contextmanager
def seldom() -> Iterator[None]:
    """Look for garbage seldom while this lasts: for work that makes many objects and no cycles."""
    before = gc.get_threshold()
    gc.set_threshold(_SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
