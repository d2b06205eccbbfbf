"""Records of moves in flight and past evictions, and how statuses of policies store both for the next leader."""
