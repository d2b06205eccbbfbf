"""The kube-scheduler's filters, one plugin a module, each answering "fits" or a reason."""
