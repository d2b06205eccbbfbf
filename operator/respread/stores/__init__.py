"""What is read of the cluster and where it is kept: the same for the operator and for the commands."""
