"""A run leaves no process, cgroup or file behind, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.node import cgroups
from tests.processes import wait_until

TESTS: Final = str(Path(__file__).with_name("test_install.py"))


def environments() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield all processes with the environment that they were started with."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended
            lines = path.read_bytes().decode(errors="replace").split("\0")
            yield int(path.parent.name), {name: value for name, _, value in (line.partition("=") for line in lines)}


def cgroup_of_run(folder: Path) -> str:
    """Return the name of the cgroup of the run whose files are in a folder; empty if it has none yet."""
    for _, environment in environments():
        if environment.get("TMPDIR", "").startswith(f"{folder}/") and cgroups.VARIABLE in environment:
            return environment[cgroups.VARIABLE]
    return ""


def processes_of(cgroup: str) -> set[int]:
    """Return the processes of a run."""
    return {pid for pid, environment in environments() if environment.get(cgroups.VARIABLE) == cgroup}


def folders_of(cgroup: str) -> list[Path]:
    """Return the folders of a cgroup in all hierarchies."""
    return [path for path in cgroups.ROOT.glob(f"*/{cgroup}") if path.is_dir()]


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL],
    ids=lambda each: each.name,
)
def test_an_interrupted_run_leaves_nothing_behind(cgroup: str, number: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.node", "-n", "0", TESTS]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as run,
    ):
        try:

            def has_a_node() -> bool:
                assert run.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
                return any((path / "0").is_dir() for path in folders_of(cgroup_of_run(tmp_path) or "none"))

            wait_until(has_a_node, "the first node of the run")
            own = cgroup_of_run(tmp_path)
            if number == signal.SIGINT:
                os.killpg(run.pid, number)  # as a terminal does
            else:
                run.send_signal(number)
            run.wait(240)
        finally:
            run.kill()
    wait_until(lambda: not processes_of(own), lambda: f"processes {processes_of(own)} to end")
    if number == signal.SIGKILL:
        with cgroups.claimed():  # as the next run does
            pass
    else:
        assert [each for each in tmp_path.glob("respread-sandboxes-*/*") if each.is_dir()] == []
    assert folders_of(own) == []
    assert folders_of(cgroup.strip("/")) != []  # those of a living run stay
