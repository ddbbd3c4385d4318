"""What of the local memory a published one gets: reviewed sessions of one repository."""

from funes_mcp.curation.shipping import Selection, selection, trouble, waiting

__all__ = ["Selection", "selection", "trouble", "waiting"]
