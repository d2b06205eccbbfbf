"""The programs of real nodes, and the images of their pods: built once, from Go modules and by `make image`."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from respread import __version__
from respread_sandbox.binaries import REAL_NODE, build_environment, build_missing, cache_directory, cache_root, find_go
from respread_sandbox.progress import BuildProgress
from tests import debian_base
from tests.go_programs import PROGRAMS, find_or_build

ROOT: Final = Path(__file__).parents[2]
IMAGE: Final = f"ghcr.io/respread/respread:{__version__}"
"""What chart and manifests name by default."""
PAGE_IMAGE: Final = f"ghcr.io/respread/respread-ui:{__version__}"
WORKLOAD_IMAGE: Final = "localhost/workload:tested"
_WORKLOAD: Final = Path(__file__).with_name("workload")
_FROM_MODULES: Final = ("containerd", "containerd-shim-runc-v2", "ctr")
_NETWORK_PLUGINS: Final = ("ptp", "loopback", "host-local")
_FROM_DISTRIBUTION: Final = {
    "go": "install Go",
    "ip": "install iproute2",
    "mount": "install mount",
    "nft": "`make node-tools`",
    "nsenter": "install util-linux",
    "openssl": "`make node-tools`",
    "podman": "`make container-tools`",
    "runc": "`make container-tools`",
    "setpriv": "install util-linux",
    "unshare": "install util-linux",
}
"""What is not built, and how to get it."""
_CONTROLLERS: Final = ("blkio", "cpu", "cpuacct", "cpuset", "memory", "pids")
KEPT_IMAGES: Final = 5


class Programs(NamedTuple):
    """Where the programs and the archives of images are."""

    folders: tuple[Path, ...]
    """All folders with programs of a node."""
    network_plugins: tuple[Path, ...]
    """The folders of CNI plugins."""
    image: Path
    """The image of this source, as `make image-archive` writes it."""
    page: Path
    """That of the page."""
    workload: Path
    """The image of all other pods."""

    @classmethod
    def find_or_build(cls) -> Programs:
        """Return everything that real nodes need. The first call takes about ten minutes of CPU time."""
        kubernetes = cache_directory(os.environ, REAL_NODE)
        build_missing(REAL_NODE, list(REAL_NODE.packages), kubernetes, os.environ, BuildProgress())
        folders = [kubernetes, *(find_or_build(PROGRAMS[name]).parent for name in _FROM_MODULES)]
        plugins = [find_or_build(PROGRAMS[name]).parent for name in _NETWORK_PLUGINS]
        images = cache_root(os.environ) / "images"
        images.mkdir(parents=True, exist_ok=True)
        with (images / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            image = _kept(images, "respread", _context, _build_image)
            page = _kept(images, "respread-ui", _context, partial(_build_image, target="page"))
            workload = _kept(images, "workload", lambda: sorted(_WORKLOAD.iterdir()), _build_workload)
        return cls(tuple(folders), tuple(plugins), image, page, workload)

    def path(self) -> str:
        """Return the PATH of a node."""
        return ":".join((*map(str, self.folders), "/usr/sbin", "/usr/bin", "/sbin", "/bin"))


def unavailable() -> str:
    """Return why this machine can't run real nodes, and what to do; empty if it can."""
    if platform.system() != "Linux" or os.getuid() != 0:
        return "real nodes need root on Linux"
    missing = {name: remedy for name, remedy in _FROM_DISTRIBUTION.items() if _which(name) is None}
    if missing:
        return "; ".join(f"{name} is missing: {remedy}" for name, remedy in missing.items())
    if absent := [name for name in _CONTROLLERS if not Path("/sys/fs/cgroup", name).is_dir()]:
        return f"the cgroup v1 controllers {', '.join(absent)} are not mounted in /sys/fs/cgroup; v2 has not been tried"
    return ""


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def name_in(archive: Path) -> str:
    """Return the name of an image of ours in its archive, which no other build uses unless it builds the same."""
    return f"localhost/{archive.name.partition('.')[0]}:tested"


def _kept(folder: Path, name: str, sources: Callable[[], Iterable[Path]], build: Callable[[Path], None]) -> Path:
    """Return an archive of an image that was built from files with this content, after building it if necessary."""
    digest = _digest(sources())
    archive = folder / f"{name}-{digest}.tar"
    if not archive.exists():
        partial = archive.with_suffix(".partial.tar")
        build(partial)
        if _digest(sources()) != digest:
            raise RuntimeError(f"the files of the image {name} were changed while it was built: run the tests again")
        partial.rename(archive)
        for old in sorted(folder.glob(f"{name}-{'[0-9a-f]' * len(digest)}.tar"), key=lambda path: path.stat().st_mtime)[
            :-KEPT_IMAGES
        ]:
            old.unlink()
    return archive


def _digest(sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sources:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _context() -> Iterator[Path]:
    """Yield the Dockerfile and the files that it copies."""
    yield ROOT / "Dockerfile"
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            copied = ROOT / line.removeprefix("!")
            files = [copied] if copied.is_file() else sorted(path for path in copied.rglob("*") if path.is_file())
            yield from (path for path in files if "__pycache__" not in path.parts)


def _build_image(archive: Path, target: str = "operator") -> None:
    """Build an image of the Dockerfile, and write it to an archive."""
    with tempfile.TemporaryDirectory() as folder:
        base = debian_base.public_or_built("podman", Path(folder))
    name = name_in(archive)
    make = ["make", "--no-print-directory", "-C", str(ROOT), "ENGINE=podman", f"IMAGE={name}", f"TARGET={target}"]
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}  # without the kernel features that containers lack
    try:
        subprocess.run([*make, "image", f"PYTHON_IMAGE={base}"], env=environment, check=True)
        subprocess.run([*make, "image-archive", f"ARCHIVE={archive}"], env=environment, check=True)
    finally:
        archive.with_suffix(".cdx.json").unlink(missing_ok=True)
        subprocess.run(["podman", "rmi", "--force", name], check=False, capture_output=True)


def _build_workload(archive: Path) -> None:
    """Build the workload's program, and write an image of it in the format of `docker save`."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "workload"
        command = [find_go(os.environ), "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(program)]
        subprocess.run([*command, "."], cwd=_WORKLOAD, env=build_environment(os.environ), check=True)
        layer = _tar({"workload": program.read_bytes()})
    layers = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    run = {"Entrypoint": ["/workload"], "User": "65535:65535"}
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = json.dumps({"architecture": architecture, "os": "linux", "config": run, "rootfs": layers}).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [WORKLOAD_IMAGE], "Layers": ["layer.tar"]}]).encode()
    archive.write_bytes(_tar({name: config, "layer.tar": layer, "manifest.json": manifest}))


def _tar(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()
