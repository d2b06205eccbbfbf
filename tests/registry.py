"""A registry for images and charts on this machine, with a key to sign them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.go_programs import PROGRAMS, find_or_build
from tests.makefile import make
from tests.processes import wait_until

_NO_PASSWORD: Final = {"COSIGN_PASSWORD": ""}


class Registry(NamedTuple):
    """A running registry, by plain HTTP."""

    address: str
    """Its address: 127.0.0.1 and the port."""
    folder: Path
    """The folder with cosign.key and cosign.pub, to which the targets write digests."""

    def make(self, target: str, **variables: object) -> subprocess.CompletedProcess[str]:
        """Run a target of the Makefile with the keys' empty password."""
        return make(target, *(f"{name}={value}" for name, value in variables.items()), environment=_NO_PASSWORD)

    def makes(self, target: str, **variables: object) -> str:
        """Run a target, which must succeed, and return its output."""
        done = self.make(target, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def secret_key(self) -> Path:
        return self.folder / "cosign.key"

    @property
    def public_key(self) -> Path:
        return self.folder / "cosign.pub"


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """Run a registry while the context lasts. It keeps everything in memory.

    Args:
        folder: an empty folder for its log, the keys and digests.
    """
    crane, cosign = (find_or_build(PROGRAMS[name]) for name in ("crane", "cosign"))
    subprocess.run([cosign, "generate-key-pair"], cwd=folder, env=_NO_PASSWORD, check=True, capture_output=True)
    log = folder / "registry.log"
    command: list[str | Path] = [crane, "registry", "serve", "--address", "127.0.0.1:0"]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: _port(log) is not None, lambda: f"the registry to listen; its log: {log.read_text()}")
            yield Registry(f"127.0.0.1:{_port(log)}", folder)
        finally:
            process.terminate()


def _port(log: Path) -> str | None:
    found = re.search(r"serving on port (\d+)\n", log.read_text(encoding="utf-8"))
    return found[1] if found else None
