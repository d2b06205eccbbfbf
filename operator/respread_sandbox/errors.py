"""What can go wrong with a sandbox, said to the person who has to do something about it."""

from pathlib import Path


class SandboxError(Exception):
    """A sandbox cannot be built, started or used; the message says what to do."""


class ToolchainError(SandboxError):
    """Binaries are missing and Go, which would build them, is missing or too old."""


class BuildError(SandboxError):
    """Go could not build a binary; the message ends with the last lines it printed."""


class ComponentError(SandboxError):
    """A component of the control plane ended or did not become ready; the message ends with its log's last lines."""


def last_lines(file: Path, lines: int = 15) -> str:
    """The end of a log, indented to stand below an error's first line; says so where there is none."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (its log is empty)"
