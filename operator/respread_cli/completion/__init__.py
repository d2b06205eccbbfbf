"""Completions of an incomplete command line."""
