"""The last look at a pod's controller: whether it is at rest, and what it would make in the pod's place."""
