"""Respread keeps pods spread as their topology spread constraints require."""

__version__ = "0.1.0"
