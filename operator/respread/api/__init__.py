"""What users write and read: the RebalancePolicy types, their validation, conditions and reasons."""
