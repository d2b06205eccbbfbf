"""bench/compare: Respread and the descheduler on the same small clusters, each with a different difficulty."""
