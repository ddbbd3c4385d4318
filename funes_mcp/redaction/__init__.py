"""Credentials found and replaced before anything is stored or published."""

from __future__ import annotations

from funes_mcp.redaction.model import Finding, Redacted, ScannerError
from funes_mcp.redaction.redactor import Redactor

__all__ = ["Finding", "Redacted", "Redactor", "ScannerError"]
