"""`respread ui`: a page on this machine that shows the cluster's spread."""
