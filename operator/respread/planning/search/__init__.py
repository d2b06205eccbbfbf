"""The search for the fewest safe steps that cure groups which share pods."""
