"""Why a group stays violated."""
