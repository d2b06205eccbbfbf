"""The real demo, with fewer Deployments than `make demo`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from tests.processes import wait_until, wait_until_dead

COMMAND = (sys.executable, "-m", "respread_cli.main", "demo", "--deployments", "4")
ATTEMPTS = 6
"""The maximum number of demos without a violation. A scale-down deletes random pods, and with four Deployments some
percent of the demos violate no constraint."""


class Demo:
    """A running demo, and its output."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as output:
            self.process = subprocess.Popen([*COMMAND, *arguments], stdout=output, stderr=output, env=environment)

    @property
    def text(self) -> str:
        return self._log.read_text()

    def find(self, pattern: str) -> list[str]:
        """Return the matches of a pattern at the beginnings of lines."""
        return re.findall(f"^{pattern}", self.text, re.MULTILINE)


@pytest.fixture
def start(binaries: object, tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """A function that starts demos; those still running after the test are stopped."""
    del binaries  # the fixture builds them before the time limit of a test counts
    started: list[Demo] = []

    def start_one(*arguments: str) -> Demo:
        started.append(Demo(tmp_path / f"demo-{len(started)}.log", *arguments))
        return started[-1]

    yield start_one
    for demo in started:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(90)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def descendants(pid: int) -> set[int]:
    """Return all descendants of a process."""
    children: dict[int, set[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), set()).add(int(file.parent.name))
    found: set[int] = set()
    left = [pid]
    while left:
        new = children.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def test_with_prevention_no_pod_is_evicted_and_without_it_the_fewest(start: Callable[..., Demo]) -> None:
    for _ in range(ATTEMPTS):
        demo = start()
        assert demo.process.wait(400) == 0, demo.text
        (needed,) = demo.find(r"evictions needed +(\d+) +0$")
        if int(needed):
            break
    (made,) = demo.find(r"evictions made +(\d+) +0$")
    assert int(made) == int(needed) > 0
    (violated,) = demo.find(r"zone constraints violated by scale-down +(\d+) +0$")
    assert int(violated) > 0
    for what in ("zone constraints violated", "hostname constraints violated", "pods Pending"):
        assert demo.find(rf"{what} in the end +0 +0$")
    assert demo.find("Every constraint holds, ")
    # One cost for each protected pod, and none for the others.
    assert demo.find(rf"The API server's audit log has the same {made} evictions?, and 48 pod deletion costs written")


def with_a_stopped_operator(start: Callable[..., Demo]) -> Demo:
    """Return a demo that has ended and whose operator was stopped at the scale-down.

    Otherwise the operator may restore the spread within a second.
    """
    demo = start("--patience", "1")
    wait_until(lambda: bool(demo.find("Now every Deployment is scaled down")), lambda: demo.text)
    (operator,) = (pid for pid in descendants(demo.process.pid) if b"respread.program.main\0run\0" in command_of(pid))
    os.kill(operator, signal.SIGSTOP)
    demo.process.wait(400)
    return demo


def test_a_failed_demo_names_what_is_missing_and_has_exit_code_1(start: Callable[..., Demo]) -> None:
    for _ in range(ATTEMPTS):
        demo = with_a_stopped_operator(start)
        if demo.find(r"Not as it should be: the zone constraint of app-\d.* does not hold in without-prevention; "):
            break
    else:
        pytest.fail(demo.text)
    assert demo.process.returncode == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_is_left_after_the_demo_ends(start: Callable[..., Demo], number: signal.Signals, code: int) -> None:
    demo = start("--deployments", "2")
    wait_until(lambda: bool(demo.find("… Starting the operator")), lambda: demo.text)
    started = descendants(demo.process.pid)
    assert len(started) >= 6  # the supervisor and five components, and maybe the operator
    demo.process.send_signal(number)
    assert demo.process.wait(90) == code, demo.text
    wait_until_dead(started)
    assert "Traceback" not in demo.text


def test_the_page_of_the_demo_shows_both_namespaces_and_ends_with_it(start: Callable[..., Demo]) -> None:
    demo = start("--ui", "--deployments", "2")
    wait_until(lambda: bool(demo.find(r" +Open http://127\.0\.0\.1:")), lambda: demo.text)
    (url,) = demo.find(r" +Open (http://\S+)$")

    def namespaces() -> set[str]:
        rows = requests.get(f"{url}api/cluster", timeout=60).json()["overview"]["rows"]
        return {row["group"]["namespace"] for row in rows}

    wait_until(lambda: namespaces() == {"without-prevention", "with-prevention"}, "both namespaces to be shown")
    started = descendants(demo.process.pid)
    demo.process.send_signal(signal.SIGTERM)
    assert demo.process.wait(90) == 143, demo.text
    wait_until_dead(started)
    assert "Traceback" not in demo.text


def test_without_a_control_plane_or_go_the_error_says_what_to_do(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(COMMAND, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "Go was not found" in done.stderr
