"""What ends a command: one sentence for the person who typed it, and exit code 2."""

from __future__ import annotations

import click


class CommandError(click.ClickException):
    """A command cannot do what it was asked to; the message says what is wrong, where, and what to do.

    Exit code 1 means that constraints are violated, so everything that went wrong is 2, as wrong usage is.
    """

    exit_code = 2
