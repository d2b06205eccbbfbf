"""A base image made of Debian packages, for machines that can't pull the public one.

It has the same Debian and the same minor version of Python, and trusts the certificates that this machine trusts.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Final

import pytest

from respread_sandbox.binaries import cache_root

_DOCKERFILE_OF_IMAGE: Final = Path(__file__).parents[1] / "Dockerfile"
_SUITE: Final = "trixie"
_PACKAGES: Final = "python3,python3-venv,ca-certificates"
_SOURCES: Final = Path("/etc/apt")
_MIRROR: Final = re.compile(r"https?://\S+/debian/?(?=\s|$)")
"""A line of a list of package sources, in either format."""
_DOCKERFILE: Final = """\
FROM scratch
ADD base.tar /
COPY certificates.crt /etc/ssl/certs/ca-certificates.crt
"""


def public_or_built(engine: str, folder: Path) -> str:
    """Return the name of the base that the Dockerfile names, or of one like it if that can't be pulled.

    Arguments as of `build`.
    """
    (public,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", _DOCKERFILE_OF_IMAGE.read_text(encoding="utf-8"), re.MULTILINE)
    if subprocess.run([engine, "pull", "--quiet", public], check=False, capture_output=True).returncode == 0:
        return str(public)
    return build(engine, folder)


def build(engine: str, folder: Path) -> str:
    """Build the base image, and return its name. The packages are downloaded once, into the cache.

    Args:
        engine: podman, buildah or docker.
        folder: an empty one for what it is built from.
    """
    os.link(_packages(), folder / "base.tar")
    trusted = ssl.get_default_verify_paths().cafile or ssl.get_default_verify_paths().openssl_cafile
    shutil.copy(os.environ.get("SSL_CERT_FILE", trusted), folder / "certificates.crt")
    (folder / "Dockerfile").write_text(_DOCKERFILE, encoding="utf-8")
    name = f"localhost/respread-base:{_SUITE}"
    subprocess.run([engine, "build", "--quiet", "--timestamp", "0", "--tag", name, folder], check=True)
    return name


def _packages() -> Path:
    """Return an archive of Debian's packages, unpacked and configured."""
    folder = cache_root(os.environ) / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"debian-{_SUITE}-python.tar"
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            if shutil.which("mmdebstrap") is None:
                pytest.skip("mmdebstrap is not installed: `make container-tools` installs it")
            partial = archive.with_suffix(".partial.tar")
            command: list[str | Path] = [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={_PACKAGES}",
                _SUITE,
                partial,
                _mirror(),
            ]
            subprocess.run(command, check=True, timeout=900)
            partial.rename(archive)
    return archive


def _mirror() -> str:
    """Return the mirror of Debian that this machine uses."""
    files = sorted(path for path in _SOURCES.glob("sources.list*/**/*") if path.is_file())
    for path in (_SOURCES / "sources.list", *files):
        if path.is_file() and (found := _MIRROR.search(path.read_text(encoding="utf-8"))):
            return found[0]
    pytest.skip(f"{_SOURCES} names no mirror of Debian, and the public base can't be pulled")
