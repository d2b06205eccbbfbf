"""What a person types: the operator's start, looking at a cluster's spread, and the demo."""
