"""The connection that a command's options name."""

from __future__ import annotations

from respread.cli.errors import CommandError
from respread.kube import kubeconfig as kube
from respread.kube.access import AccessError
from respread.kube.kubeconfig import Connection

__all__ = ["Connection", "connect"]


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Return a client for the API server; no request is made yet.

    Args:
        kubeconfig: a file, or several joined as in `KUBECONFIG`.
        context: one of its contexts; by default its current one.

    Raises:
        CommandError: there is none, or its credentials can't be had.
    """
    try:
        return kube.connect(kubeconfig, context)
    except AccessError as error:
        raise CommandError(str(error)) from error
