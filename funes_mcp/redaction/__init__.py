"""Credentials found and replaced before anything is stored or published."""
