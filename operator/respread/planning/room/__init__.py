"""Room: who needs it, who has it, and whether everybody keeps it."""
