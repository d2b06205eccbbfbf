"""Respread keeps pods spread the way their topology spread constraints say."""

__version__ = "0.1.0"
