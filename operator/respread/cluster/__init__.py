"""The cluster: typed Kubernetes objects, and snapshots that contain them."""
