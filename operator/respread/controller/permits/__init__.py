"""Whether a move is made now: permission, limits, turns."""
