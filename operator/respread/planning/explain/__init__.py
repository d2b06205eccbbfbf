"""Why a group stays violated, and what a plan means for single pods and domains."""
