"""Registering funes with an agent and taking it out again, without harming anything else in its files."""
