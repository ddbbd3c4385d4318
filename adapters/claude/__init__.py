"""The Claude Code adapter."""
