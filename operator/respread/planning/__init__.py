"""Which pods to move: a snapshot and policies in, a plan out."""
