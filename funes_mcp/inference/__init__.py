"""Embedders and rerankers behind two protocols."""
