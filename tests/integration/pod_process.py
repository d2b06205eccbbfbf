"""A process with no more than a pod has: a ServiceAccount, and neither a user's name nor a folder to write to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import yaml

from respread_sandbox import Sandbox

UID: Final = 1000650000
"""A user as OpenShift chooses it for a namespace; its group is 0."""
_AS_IN_A_POD: Final = """
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
mount --bind "$1" /run/secrets/kubernetes.io/serviceaccount
while read -r _ point _; do
    case $point in /proc*|/dev*) ;; *) mount -o remount,bind,ro "$point";; esac
done </proc/self/mounts
shift
hostname respread-0
exec unshare --user --map-user=%d --map-group=0 -- "$@"
"""
_IN_NEW_NAMESPACES: Final = ("unshare", "--user", "--map-root-user", "--mount", "--uts", "--", "sh", "-ec")


class PodProcess:
    """What a process in a pod of Respread finds. Its user is one that OpenShift chooses."""

    def __init__(self, sandbox: Sandbox, folder: Path, server: str = "") -> None:
        """Write the files of the ServiceAccount, as a kubelet does.

        Args:
            sandbox: the cluster, in which Respread is installed.
            folder: an empty one for the files.
            server: the address of something in front of the API server, if there is something.
        """
        self._sandbox = sandbox
        self._folder = folder
        self._server = server or sandbox.server
        self.renew_token()
        self.write("ca.crt", sandbox.files.serving_certificate.read_text(encoding="utf-8"))
        self.write("namespace", "respread-system")

    def renew_token(self) -> str:
        """Replace the token, and return the new one."""
        kubeconfig = self._sandbox.kubeconfig_for_service_account("respread-system", "respread")
        (user,) = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["users"]
        token: str = user["user"]["token"]
        self.write("token", token)
        return token

    def write(self, name: str, text: str) -> None:
        """Replace one of the files of the ServiceAccount, at once as a whole."""
        partial = self._folder / f".{name}"
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o644)
        partial.rename(self._folder / name)

    @property
    def service(self) -> dict[str, str]:
        """The environment variables that name the API server."""
        address = urlsplit(self._server)
        return {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)}

    def environment(self) -> dict[str, str]:
        """Return all environment variables."""
        return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **self.service}

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs Python with these arguments in namespaces of its own, as the same process."""
        if not _has_namespaces():
            pytest.skip("this user may not create namespaces, which simulate a container")
        return [*_IN_NEW_NAMESPACES, _AS_IN_A_POD % UID, "sh", str(self._folder), sys.executable, *arguments]


@cache
def _has_namespaces() -> bool:
    """Return whether this user may create user namespaces, which some distributions forbid."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_IN_NEW_NAMESPACES, "true"], check=False, capture_output=True).returncode == 0
