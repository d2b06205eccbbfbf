"""Run the tests on real nodes, in namespaces of their own.

    python -m tests.node [arguments of pytest]    (without those that are marked `long`, unless there is another -m)

When the first process of the run ends, however that happens, the kernel ends all others and removes every mount and
network interface. What it leaves are cgroups and files, which are removed here, or by the next run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from respread_sandbox import Binaries
from respread_sandbox.directory import claim
from tests.go_programs import PROGRAMS, find_or_build
from tests.node import cgroups
from tests.node.programs import Programs, unavailable

_TESTS: Final = str(Path(__file__).parent)
_CLUSTERS: Final = 2
"""How many clusters run at the same time."""
# The run dies with this process, and all that is in its PID namespace with it.
_NAMESPACES: Final = ("setpriv", "--pdeathsig=KILL", "unshare", "--net", "--mount", "--pid", "--ipc", "--mount-proc")
_FIRST_PROCESS: Final = ("--fork", "--kill-child=SIGKILL", "sh", "-c")
# Not by exec: the shell collects the processes whose parent has ended.
_SCRIPT: Final = 'ip link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward && "$@"; exit $?'


def main() -> int:
    """Build what is missing, and run the tests. Return pytest's exit code."""
    selected = [each for each in sys.argv[1:] if Path(each.partition("::")[0]).exists()] or [_TESTS]
    options = ["-m", "not long", *(each for each in sys.argv[1:] if each not in selected)]
    # Tests mostly wait for Leases and pods. The tests of a file share a cluster.
    workers = ["-n", str(_CLUSTERS), "--dist", "loadfile", "--no-loadscope-reorder"]
    pytest = [sys.executable, "-m", "pytest", *workers, "-p", "no:cacheprovider", *options, *selected]
    if unavailable():
        return subprocess.run(pytest, check=False).returncode  # each test is skipped with the reason
    Binaries.find_or_build()
    Programs.find_or_build()
    find_or_build(PROGRAMS["helm"])
    with _folder() as folder, cgroups.claimed() as cgroup:
        environment = {**os.environ, "TMPDIR": str(folder), cgroups.VARIABLE: cgroup}
        return _run([*_NAMESPACES, *_FIRST_PROCESS, _SCRIPT, "sh", *pytest], environment)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Create a folder, and remove it with all in it. The next sandbox of this user removes what a killed run left."""
    claimed = claim(None)
    try:
        yield claimed.path
    finally:
        shutil.rmtree(claimed.path, ignore_errors=True)
        os.close(claimed.lock_fd)


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run a command that handles Ctrl-C itself. Kill it if this process is told to end."""
    with subprocess.Popen(command, env=environment) as process:

        def end(number: int, _frame: types.FrameType | None) -> None:
            if number == signal.SIGTERM:
                process.kill()

        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        return process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
