"""Room in domains that are empty or full: which is asked for, and the objects that ask an autoscaler for it."""
