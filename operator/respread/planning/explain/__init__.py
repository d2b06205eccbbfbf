"""Why a group stays violated, and what a plan makes of single pods and domains."""
