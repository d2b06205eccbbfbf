"""The error that ends a command: one sentence for the user, and exit code 2."""

from __future__ import annotations

import click


class CommandError(click.ClickException):
    """A command can't do what was requested. The message says what is wrong, where, and what to do.

    Exit code 1 says what a command found, such as a violated constraint. So every error has exit code 2, like wrong
    usage.
    """

    exit_code = 2
