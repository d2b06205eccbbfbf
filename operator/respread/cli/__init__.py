"""The command line: `skew`, `plan`, `explain`, `simulate`, `snapshot`, `migrate`, and `run`, which starts the
operator."""
