"""The connection that a command's options select."""

from __future__ import annotations

from typing import Final

from respread.kube.access import AccessError, load_access
from respread.kube.connection import READS_AGAIN, Connection, open_connection
from respread.kube.credentials import Impersonation
from respread.program.command_line import CommandError
from respread_cli.options import ConnectionOptions

_ADVICE: Final = (
    "Name a kubeconfig by --kubeconfig or KUBECONFIG, look at a file by --snapshot, or start a cluster to try things "
    "with by `respread sandbox up`"
)


def connect(options: ConnectionOptions) -> Connection:
    """Return a client for the API server. It makes no request yet.

    Raises:
        CommandError: there is none, or its credentials are not available.
    """
    try:
        access = load_access(kubeconfig=options.kubeconfig, context=options.context, advice=_ADVICE)
    except AccessError as error:
        raise CommandError(f"{error}.") from error
    if options.as_groups and not (options.as_user or access.impersonation.user):
        raise CommandError(
            "--as-group needs --as, or `as` in the kubeconfig: the API server impersonates groups only together with a "
            "user."
        )
    return open_connection(
        access,
        READS_AGAIN,
        impersonation=Impersonation(options.as_user, options.as_groups),
        timeout_seconds=options.request_timeout_seconds,
    )
