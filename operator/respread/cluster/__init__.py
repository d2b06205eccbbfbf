"""The cluster as Respread knows it: typed Kubernetes objects and the state made of them."""
