"""The output formats of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from respread_cli.render.jsonpath import JsonPathTemplate

FORMATS: Final = ("table", "wide", "json", "yaml", "markdown", "html", "name")
"""The values of `-o`, besides `jsonpath=TEMPLATE`."""
JSONPATH: Final = "jsonpath"
VIOLATED: Final = 1
"""The exit code for violated constraints, if it is requested."""


class OutputOptions(msgspec.Struct, frozen=True):
    """How to show the result."""

    format: str = "table"
    """One of `FORMATS`, or `jsonpath`."""
    no_color: bool = False
    template: JsonPathTemplate | None = None
    """With `jsonpath`, its template."""
    exit_code: bool = False
    """Whether violated constraints decide about the exit code."""
    watch: bool = False
    """Whether to print the result again when it changes."""

    @property
    def wide(self) -> bool:
        """Whether to show everything."""
        return self.format == "wide"

    def code(self, *, violated: bool) -> int:
        """Return the exit code."""
        return VIOLATED if violated and self.exit_code else 0
