"""What is under way and what was done, and how the policies' statuses keep both for the next leader."""
