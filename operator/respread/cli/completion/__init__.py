"""What shells offer for a line that is not complete."""
