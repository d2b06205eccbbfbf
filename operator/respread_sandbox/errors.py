"""The errors of a sandbox. Each message tells the user what to do."""

from pathlib import Path


class SandboxError(Exception):
    """A sandbox cannot be built, started or used; the message says what to do."""


class ToolchainError(SandboxError):
    """Programs are missing, and Go is missing or too old to build them."""


class BuildError(SandboxError):
    """Go could not build a program; the message ends with the last lines of its output."""


class ComponentError(SandboxError):
    """A component ended or did not become ready; the message ends with the last lines of its log."""


def last_lines(file: Path, lines: int = 15) -> str:
    """Return the last lines of a log, indented for an error message, or a note that the log is empty or missing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (its log is empty)"
