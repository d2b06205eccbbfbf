"""Whether a move may be made now: leadership, policies, limits, order; and which permissions are missing."""
