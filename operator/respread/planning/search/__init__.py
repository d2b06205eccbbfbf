"""The search for the fewest safe steps that restore groups which share pods."""
