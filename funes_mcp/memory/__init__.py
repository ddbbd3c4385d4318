"""The memory: one Lance table, what is derived from it, and who may write it."""
