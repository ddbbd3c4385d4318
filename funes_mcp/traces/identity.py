"""Digests that copies of a message are recognised by."""

from __future__ import annotations

import hashlib


def digest(*parts: str) -> str:
    """40 hex digits: SHA-1 over the parts, behind their lengths, so that no two lists of parts run into the
    same bytes. The parts may hold anything, lone surrogates too."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    lengths = ",".join([str(len(data)) for data in encoded]).encode()
    return hashlib.sha1(b"".join([lengths, b":", *encoded]), usedforsecurity=False).hexdigest()
