"""What a person types: looking at a cluster's spread, plans and explanations, and the operator's start."""
