"""Credentials of the pod in which this process runs: its ServiceAccount."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from respread.kube.credentials import CredentialsError, Endpoint, Pem, TokenFile

SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT: Final = "KUBERNETES_SERVICE_PORT"
FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_service_account(folder: Path = FOLDER, clock: Callable[[], float] = monotonic) -> tuple[Endpoint, TokenFile]:
    """Return the API server of the cluster in which this process runs, and the pod's token.

    Args:
        folder: where the kubelet puts them.
        clock: a monotonic clock in seconds.

    Raises:
        CredentialsError: there is none, or it is incomplete.
        OSError: a file can't be read.
    """
    host, port = os.environ.get(SERVICE_HOST), os.environ.get(SERVICE_PORT)
    if not host or not port:
        raise CredentialsError(f"{SERVICE_HOST} and {SERVICE_PORT} are not both set")
    token = TokenFile(folder / "token", clock)
    token.authorization()
    return Endpoint(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=(folder / "namespace").read_text(encoding="utf-8").strip(),
        certificate_authority=Pem(path=str(folder / "ca.crt")),
    ), token
