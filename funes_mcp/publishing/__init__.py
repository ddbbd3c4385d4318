"""Publishing a memory: which rows leave, how they are written, and what is remembered of it."""
