"""How property tests run: without a limit of time for each example, since a busy machine is no fault of the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("respread", deadline=None)
settings.load_profile("respread")
