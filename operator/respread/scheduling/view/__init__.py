"""The cluster as filters look at it: nodes and pods with indices that follow every change."""
