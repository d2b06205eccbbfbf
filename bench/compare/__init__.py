"""bench/compare: Respread and its peer on the same small clusters, each with something else that is hard."""
