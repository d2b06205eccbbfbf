"""Room in domains without a node: which is asked for, and the objects that ask an autoscaler for it."""
