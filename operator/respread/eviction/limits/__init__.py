"""The limits of policies: which evictions they bound, and whether they have room for more."""
