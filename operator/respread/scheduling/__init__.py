"""kube-scheduler's answers: where a pod may go, by its filters, its configuration and its version."""
