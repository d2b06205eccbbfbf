"""The clusters of a kubeconfig's contexts, of which the page shows one at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from respread_cli.ui.engine import Engine


class Contexts:
    """Opens clusters, and closes them."""

    def __init__(
        self, names: tuple[str, ...], open_engine: Callable[[str | None], AbstractContextManager[Engine]]
    ) -> None:
        """Create it.

        Args:
            names: the contexts; none if the cluster can't be changed.
            open_engine: opens the cluster of a context; None: that of the command's options.
        """
        self.names = names
        self._open_engine = open_engine
        self._opened: list[tuple[Engine, ExitStack]] = []

    def open(self, name: str | None = None) -> Engine:
        """Return an engine, which reads the cluster from now on. Any thread may call it: it may run a plugin.

        Raises:
            CommandError: the cluster can't be reached.
        """
        with ExitStack() as stack:
            engine = stack.enter_context(self._open_engine(name))
            self._opened.append((engine, stack.pop_all()))
        return engine

    def close_all_but(self, shown: Engine) -> None:
        """End the reading of all other clusters."""
        for engine, stack in tuple(self._opened):
            if engine is not shown:
                self._opened.remove((engine, stack))
                stack.close()

    def close(self) -> None:
        """End the reading of every cluster."""
        while self._opened:
            self._opened.pop()[1].close()
