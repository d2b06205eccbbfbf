"""From a command's options to the cluster that it looks at."""
