"""The commands, one module each: what to type, and how people see the result."""
