"""The filters of kube-scheduler, one plugin per module. Each answers "fits" or a reason."""
