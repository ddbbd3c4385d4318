"""Transport to Hugging Face repositories. Knows nothing of memories."""
