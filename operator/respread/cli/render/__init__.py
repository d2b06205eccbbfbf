"""What commands found, as values and as tables."""
