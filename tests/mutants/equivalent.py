"""Changes that no test can catch, because they change nothing that anybody observes, with the reason."""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[tuple[str, str, str], str]] = {}
"""By file, function and name of the change."""
