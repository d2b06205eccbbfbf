"""The certificates of a cluster with real nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

AUTHORITY: Final = "ca"
_DAYS: Final = "2"
_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


class Certificates:
    """A certificate authority, and pairs NAME.crt and NAME.key in a folder."""

    def __init__(self, folder: Path, *, key_identifiers: bool = True) -> None:
        """Create the authority.

        Args:
            folder: an empty one.
            key_identifiers: False for certificates as Go made them before 1.15, which old clusters still have.
        """
        self.folder = folder
        self._key_identifiers = key_identifiers
        usage = "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign"
        self._create(AUTHORITY, "CN=tested", ["basicConstraints=critical,CA:TRUE", usage])

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.folder / f"{AUTHORITY}.crt"

    def for_server(self, name: str, addresses: Sequence[str]) -> None:
        """Create the pair of an API server, whose certificate is followed by its authority."""
        names = ",".join((*(f"IP:{each}" for each in addresses), *(f"DNS:{each}" for each in _NAMES)))
        self._create(name, f"CN={name}", [*_leaf("serverAuth"), f"subjectAltName={names}"])
        with (self.folder / f"{name}.crt").open("a", encoding="utf-8") as chain:
            chain.write(self.authority.read_text(encoding="utf-8"))

    def for_client(self, name: str, user: str, *groups: str) -> None:
        """Create the pair of a user."""
        self._create(name, ",".join((f"CN={user}", *(f"O={group}" for group in groups))), _leaf("clientAuth"))

    def kubeconfig(self, name: str, server: str) -> dict[str, Any]:
        """Return the kubeconfig of a pair's user."""
        pair = {"client-certificate": f"{self.folder}/{name}.crt", "client-key": f"{self.folder}/{name}.key"}
        cluster = {"server": server, "certificate-authority": str(self.authority)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tested", "cluster": cluster}],
            "users": [{"name": name, "user": pair}],
            "contexts": [{"name": "tested", "context": {"cluster": "tested", "user": name}}],
            "current-context": "tested",
        }

    def _create(self, name: str, subject: str, extensions: list[str]) -> None:
        is_authority = name == AUTHORITY
        subject_key, authority_key = ("hash", "keyid") if self._key_identifiers else ("none", "none")
        identifiers = [f"subjectKeyIdentifier={subject_key}"]
        identifiers += [] if is_authority else [f"authorityKeyIdentifier={authority_key}"]
        sections = ["[req]", "distinguished_name=subject", "x509_extensions=extensions", "prompt=no", "[subject]"]
        configuration = self.folder / f"{name}.cnf"
        lines = [*sections, *subject.split(","), "[extensions]", *extensions, *identifiers, ""]
        configuration.write_text("\n".join(lines), encoding="utf-8")
        pair = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        by = [] if is_authority else ["-CA", f"{AUTHORITY}.crt", "-CAkey", f"{AUTHORITY}.key"]
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", _DAYS]
        command = ["openssl", "req", *kind, "-config", configuration.name, *by, *pair]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)


def _leaf(usage: str) -> list[str]:
    return ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={usage}"]
