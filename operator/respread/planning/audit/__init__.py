"""Whether a topology spread constraint can work: what makes it ineffective or unsatisfiable, and what cures it."""
