"""Records of moves in flight and past evictions, and how records of policies store both for the next leader."""
