"""Pod deletion costs, so that scale-downs delete pods from the fullest domains and need no evictions."""
