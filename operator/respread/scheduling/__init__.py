"""The kube-scheduler's filters, one rule a module, each answering "fits" or a reason."""
