"""Ends a long computation from another thread."""

from __future__ import annotations


class CanceledError(Exception):
    """The result of a computation is no longer wanted."""


class Cancellation:
    """Whether the result of a computation is still wanted. Any thread may use it."""

    __slots__ = ("_canceled",)

    def __init__(self) -> None:
        self._canceled = False

    def cancel(self) -> None:
        """Let the computation end the next time that it checks."""
        self._canceled = True

    def check(self) -> None:
        """Go on, unless the result is no longer wanted.

        Raises:
            CanceledError: it is not.
        """
        if self._canceled:
            raise CanceledError
