"""The hermes adapter."""
