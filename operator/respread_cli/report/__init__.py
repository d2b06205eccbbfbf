"""What commands say about a cluster, as values: skew, plans, explanations, and what changes would do."""
