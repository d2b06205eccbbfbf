"""A control plane with the operator, and a function that runs another controller beside them."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from respread_sandbox import Binaries, Sandbox, SandboxOptions
from tests.integration.operator_process import OperatorProcess, install
from tests.integration.pools import Pool
from tests.integration.workloads import pods, scale, wait_until

Run = Callable[..., None]


@pytest.fixture(scope="module")
def cluster(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A control plane with the operator and without nodes."""
    with Sandbox.start(SandboxOptions(nodes=0, audit=True), binaries=binaries) as sandbox:
        install(sandbox)
        scale(sandbox, "respread-system", "respread", 0)
        wait_until(lambda: not pods(sandbox, "respread-system"), "the installed operator's pods to be gone")
        with OperatorProcess(sandbox, tmp_path_factory.mktemp("operator")) as operator:
            operator.wait_until_ready()
            yield sandbox
            assert operator.stop() == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A function that runs a controller until the module's tests have finished."""
    folder = tmp_path_factory.mktemp("controllers")
    with ExitStack() as running:

        def start(program: Path, *arguments: str, **environment: str) -> None:
            running.enter_context(_running(folder / f"{program.name}.log", [str(program), *arguments], environment))

        yield start


@contextmanager
def _running(log_file: Path, command: list[str], environment: dict[str, str]) -> Iterator[None]:
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=log_file.parent, env=environment)
        try:
            yield
            assert process.poll() is None, f"it ended by itself:\n{log_file.read_text()[-3000:]}"
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def pool(cluster: Sandbox) -> Pool:
    """A namespace with one zone."""
    pool = Pool(cluster, f"custom-{secrets.token_hex(3)}")
    pool.add_zone("zone-a")
    return pool
