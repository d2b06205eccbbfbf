"""Spread groups: which domains count, how many pods each has, and the current skew."""
