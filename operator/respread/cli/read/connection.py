"""The connection that a command's options select."""

from __future__ import annotations

from typing import Final

from respread.cli.errors import CommandError
from respread.kube.access import AccessError, load_access
from respread.kube.connection import READS_AGAIN, Connection, open_connection

_ADVICE: Final = (
    "Name a kubeconfig by --kubeconfig or KUBECONFIG, look at a file by --snapshot, or start a cluster to try things "
    "with by `respread sandbox up`"
)


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Return a client for the API server. It makes no request yet.

    Args:
        kubeconfig: a file, or several joined as in `KUBECONFIG`.
        context: one of its contexts; by default its current one.

    Raises:
        CommandError: there is none, or its credentials are not available.
    """
    try:
        return open_connection(load_access(kubeconfig=kubeconfig, context=context, advice=_ADVICE), READS_AGAIN)
    except AccessError as error:
        raise CommandError(f"{error}.") from error
