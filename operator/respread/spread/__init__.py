"""Spread groups: which domains count, how many pods each holds, and the live skew."""
