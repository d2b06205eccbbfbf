"""The command line: read-only commands about a cluster, `migrate`, and `run`, which starts the operator."""
