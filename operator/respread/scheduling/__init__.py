"""Predicts kube-scheduler: where a pod may go, by its filters, its configuration and its version."""
