"""The policy API: the types of both policy kinds, their validation, conditions and reasons."""
