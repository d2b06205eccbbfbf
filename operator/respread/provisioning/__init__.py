"""Room in domains without a node: which is asked for, and the placeholders that ask an autoscaler for it."""
