"""The last look at a pod's controller: whether it is at rest, and what replacement it would create."""
