"""The result of `respread lint` as values. They are the JSON output, and all other formats are made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from respread.planning.audit.finding import PatchOperation
from respread_cli.lint.rules import LintLevel

API_VERSION: Final = "cli.respread.dev/v1"


class LintFindingReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that is wrong in an object."""

    rule: str
    level: LintLevel
    file: str
    """As given, or `standard input`."""
    line: int
    kind: str
    """Of the object; empty if the document holds none."""
    namespace: str
    name: str
    field: str
    """Empty for the object itself."""
    message: str
    cure: str
    patch: tuple[PatchOperation, ...]
    """A JSON patch of the object, empty if there is a choice."""
    docs: str
    switched_off_by: Literal["annotation", "settings"] | None = None
    """None unless the rule is switched off for the object; then the finding does not count."""
    reason: str = ""
    """Why, as the settings say."""


class LintReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found in all files."""

    api_version: str = API_VERSION
    kind: Literal["LintReport"] = "LintReport"
    notes: tuple[str, ...] = ()
    checked: int
    """How many objects a rule looked at."""
    skipped: int
    """How many objects are of kinds without rules."""
    errors: int
    warnings: int
    switched_off: int
    """How many of the findings are switched off."""
    findings: tuple[LintFindingReport, ...]
    """By file and line."""
    missing: tuple[str, ...] = ()
    """What could not be read at all, a sentence each."""
