"""Decides which pods to move: takes a snapshot and policies, returns a plan."""
