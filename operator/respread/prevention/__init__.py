"""Pod deletion costs that make scale-downs take from the fullest domains, so that no eviction is needed."""
