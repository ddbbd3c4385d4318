"""The pi adapter."""
