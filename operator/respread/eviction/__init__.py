"""Carries a plan out through the Eviction API, within budgets and limits."""
