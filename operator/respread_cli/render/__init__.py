"""The output of the commands, as values and as tables."""
