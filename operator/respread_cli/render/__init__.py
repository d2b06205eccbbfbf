"""The output of the commands: the reports as tables, text, JSON and documents."""
