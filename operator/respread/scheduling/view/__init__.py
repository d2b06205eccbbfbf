"""The cluster as filters use it: nodes and pods, with indices that follow every change."""
