"""The `respread` command."""
