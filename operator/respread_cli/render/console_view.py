"""What a table depends on besides its content: the console, and how much of everything to show."""

from __future__ import annotations

from rich.console import Console

from respread_cli.render.domain_bars import is_ascii_only


class ConsoleView:
    """Shows results on one console."""

    def __init__(self, console: Console, *, wide: bool, with_namespace: bool) -> None:
        """Prepare.

        Args:
            console: where it is going to be printed.
            wide: whether to show everything.
            with_namespace: whether to show namespaces.
        """
        self._width = console.width
        self._ascii = is_ascii_only(console)
        self._wide = wide
        self._with_namespace = with_namespace
