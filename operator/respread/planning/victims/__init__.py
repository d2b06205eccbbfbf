"""Which pods may be evicted, under which policy, and within which PodDisruptionBudgets."""
