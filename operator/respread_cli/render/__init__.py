"""What the output of several commands is made of: formats, consoles, tables, signs of spread groups, and --watch."""
