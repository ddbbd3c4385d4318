"""Transcripts: the model every parser produces, and how files are read."""
