"""Sandboxes have directories of their own, and no component and no file outlives its sandbox or its owner."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from respread_sandbox.components import Files
from respread_sandbox.directory import claim, living, root_directory
from respread_sandbox.options import SandboxError
from respread_sandbox.supervised import SupervisedProcesses
from tests.processes import is_alive, wait_until, wait_until_dead

SLEEP = ["/bin/sleep", "600"]

OWNER = """
import json, os, signal, subprocess, sys, time
from respread_sandbox.directory import claim
from respread_sandbox.supervised import SupervisedProcesses

# Even where the tests run in the background of a shell, or under nohup:
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
directory = claim("owned")
processes = SupervisedProcesses(directory.path, directory.lock_fd)
os.close(directory.lock_fd)
pids = [processes.spawn(name, ["/bin/sleep", "600"], {}, directory.path / "log") for name in ("one", "two")]
then = sys.argv[1]
if then == "detach":
    processes.detach()
if then == "leak":  # a child that holds the pipe to the supervisor open, as a fork without exec would
    os.set_inheritable(processes._process.stdin.fileno(), True)
    pids.append(subprocess.Popen(["/bin/sleep", "600"], close_fds=False).pid)
print(json.dumps({"supervisor": processes.pid, "components": pids, "directory": str(directory.path)}), flush=True)
if then != "detach":
    time.sleep(600)
os._exit(0)
"""


@pytest.fixture(autouse=True)
def _own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # so that TMPDIR is read again


@pytest.fixture
def processes() -> Iterator[SupervisedProcesses]:
    directory = claim(None)
    supervised = SupervisedProcesses(directory.path, directory.lock_fd)
    os.close(directory.lock_fd)
    yield supervised
    supervised.close()


class Owner:
    """A process that owns two components."""

    def __init__(self, then: str = "wait") -> None:
        self.process = subprocess.Popen([sys.executable, "-c", OWNER, then], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        with self.process.stdout as said:
            told = json.loads(said.readline())
        self.supervisor: int = told["supervisor"]
        self.components: list[int] = told["components"]
        self.directory = Path(told["directory"])

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_killed_owner_leaves_no_process(number: signal.Signals) -> None:
    owner = Owner()
    assert all(is_alive(pid) for pid in owner.components)
    owner.end(number)
    wait_until_dead([*owner.components, owner.supervisor])
    assert not owner.directory.exists()


def test_a_killed_owner_whose_pipe_is_inherited_leaves_no_process() -> None:
    owner = Owner("leak")
    *components, holder = owner.components
    owner.end(signal.SIGKILL)
    try:
        wait_until_dead([*components, owner.supervisor])
        assert is_alive(holder)
    finally:
        os.kill(holder, signal.SIGKILL)
    assert not owner.directory.exists()


def test_the_components_of_a_killed_supervisor_end_and_the_next_start_cleans_up() -> None:
    owner = Owner()
    os.kill(owner.supervisor, signal.SIGKILL)
    wait_until_dead(owner.components)
    assert owner.directory.exists()
    owner.end(signal.SIGKILL)
    following = claim("owned")  # the name is free again
    os.close(following.lock_fd)
    assert [file.name for file in following.path.iterdir()] == ["lock"]


def test_stopped_components_and_those_that_ignore_sigterm_are_killed(processes: SupervisedProcesses) -> None:
    log = root_directory() / "log"
    frozen = processes.spawn("frozen", SLEEP, {}, log)
    deaf = processes.spawn("deaf", ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], {}, log)
    processes.send_signal("frozen", signal.SIGSTOP)
    processes.close()
    wait_until_dead([frozen, deaf])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux'")
def test_all_threads_are_frozen_when_the_signal_was_sent(processes: SupervisedProcesses) -> None:
    busy = "import threading, zlib\ndata = bytes(1 << 16)\ndef work():\n    while True: zlib.crc32(data)\n"
    log = root_directory() / "log"
    pid = processes.spawn(
        "busy", [sys.executable, "-c", f"{busy}for _ in range(8): threading.Thread(target=work).start()"], {}, log
    )
    threads = Path(f"/proc/{pid}/task")
    wait_until(lambda: len(list(threads.iterdir())) == 9, "its threads to start")
    for _ in range(20):
        processes.send_signal("busy", signal.SIGSTOP)
        processes.send_signal("busy", signal.SIGSTOP)  # a frozen one stays so
        assert {(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads.iterdir()} == {"T"}
        processes.send_signal("busy", signal.SIGCONT)


def test_a_detached_sandbox_runs_until_sigterm() -> None:
    owner = Owner("detach")
    owner.process.wait()
    assert all(is_alive(pid) for pid in [owner.supervisor, *owner.components])
    with pytest.raises(SandboxError, match="owned is up already"):
        claim("owned")
    os.kill(owner.supervisor, signal.SIGTERM)
    wait_until_dead([*owner.components, owner.supervisor])
    assert not owner.directory.exists()


def test_the_status_shows_exit_codes_and_signals(processes: SupervisedProcesses) -> None:
    log = root_directory() / "log"
    pid = processes.spawn("lives", SLEEP, {}, log)
    processes.spawn("fails", ["/bin/sh", "-c", "echo why; exit 3"], {}, log)
    processes.spawn("killed", SLEEP, {}, log)
    processes.send_signal("killed", signal.SIGKILL)
    wait_until(lambda: processes.status()["fails"].exit is not None, "it to end")
    status = processes.status()
    assert (status["lives"].pid, status["lives"].exit) == (pid, None)
    assert status["fails"].exit == 3
    assert status["killed"].exit == -signal.SIGKILL
    assert log.read_text() == "why\n"


def test_a_component_runs_once_at_a_time_and_can_be_restarted(processes: SupervisedProcesses) -> None:
    log = root_directory() / "log"
    first = processes.spawn("one", SLEEP, {}, log)
    with pytest.raises(SandboxError, match=f"one is running already, with process id {first}"):
        processes.spawn("one", SLEEP, {}, log)
    processes.send_signal("one", signal.SIGKILL)
    assert processes.spawn("one", SLEEP, {}, log) != first


def test_the_error_names_a_file_that_is_not_a_program(processes: SupervisedProcesses, tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_bytes(b"\x7fELF and then nothing of use")
    broken.chmod(0o755)
    with pytest.raises(SandboxError, match=rf"etcd cannot be started from {broken}: .*Exec format error"):
        processes.spawn("etcd", [str(broken)], {}, tmp_path / "log")


def test_a_reserved_port_is_not_given_out_again(processes: SupervisedProcesses) -> None:
    port = processes.reserve_port()
    assert processes.reserve_port() != port
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
    with socket.socket() as component:
        component.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        component.bind(("127.0.0.1", port))
        component.listen()
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            pass  # the holder, which never listens, gets none of the connections


def test_a_dead_supervisor_is_reported(processes: SupervisedProcesses) -> None:
    os.kill(processes.pid, signal.SIGKILL)
    wait_until_dead([processes.pid])
    with pytest.raises(SandboxError, match="supervisor has ended"):
        processes.status()


def test_a_closed_sandbox_is_reported(processes: SupervisedProcesses) -> None:
    processes.close()
    with pytest.raises(SandboxError, match="has been stopped"):
        processes.status()


def test_a_supervised_component_is_restarted_unless_it_was_stopped_on_purpose(processes: SupervisedProcesses) -> None:
    log = claim(None).path / "log"
    pids = {name: processes.spawn(name, SLEEP, {}, log) for name in ("kept", "killed", "other")}
    processes.keep_running(["kept", "killed"])
    processes.send_signal("killed", signal.SIGKILL)
    for name in ("kept", "other"):
        processes.send_signal(name, signal.SIGTERM)

    def is_back() -> bool:
        kept = processes.status()["kept"]
        return kept.exit is None and kept.pid != pids["kept"]

    wait_until(is_back, "the one that is kept running to come back")
    wait_until(lambda: processes.status()["other"].exit is not None, "the other to end")
    found = processes.status()
    assert found["killed"].exit == -signal.SIGKILL
    assert found["other"].exit == -signal.SIGTERM


def test_a_component_that_can_not_run_is_restarted_with_delays(processes: SupervisedProcesses) -> None:
    log = claim(None).path / "log"
    processes.spawn("broken", ["/bin/sh", "-c", "echo started; exit 3"], {}, log)
    processes.keep_running(["broken"])
    started = time.monotonic()
    while time.monotonic() < started + 3:
        processes.status()
    assert 2 <= log.read_text().count("started") <= 2 + time.monotonic() - started
    assert processes.status()["broken"].exit in {None, 3}


def test_a_directory_without_a_lock_holder_is_deleted() -> None:
    dead, alive = claim("dead"), claim("alive")
    (dead.path / "etcd").mkdir()
    os.close(dead.lock_fd)
    nameless = claim(None)
    assert not dead.path.exists()
    assert alive.path.exists()
    assert living() == [alive.path]
    os.close(alive.lock_fd)
    os.close(nameless.lock_fd)
    assert living() == []


def test_unnamed_directories_never_collide() -> None:
    claimed = [claim(None) for _ in range(20)]
    assert len({each.path for each in claimed}) == 20
    for each in claimed:
        os.close(each.lock_fd)


def test_only_the_user_can_read_the_directories() -> None:
    claimed = claim("mine")
    os.close(claimed.lock_fd)
    assert claimed.path.stat().st_mode & 0o077 == 0
    assert root_directory().stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "Default", "a b", "../up", "-a", "a-", "_x", "a" * 33, "ä"])
def test_an_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(SandboxError, match="cannot be a sandbox's name"):
        claim(name)


def test_a_root_that_other_users_can_access_is_rejected() -> None:
    root_directory().chmod(0o777)
    with pytest.raises(SandboxError, match="nobody else can use"):
        claim(None)


def test_a_root_that_is_a_symbolic_link_is_rejected(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    root_directory().rmdir()
    (tmp_path / f"respread-sandboxes-{os.getuid()}").symlink_to(target)
    with pytest.raises(SandboxError, match="must be a directory of yours"):
        claim(None)


def test_a_certificate_counts_only_if_it_is_complete(tmp_path: Path) -> None:
    files = Files(directory=tmp_path)
    files.serving_certificate.parent.mkdir()
    assert not files.has_serving_certificate()
    files.serving_certificate.touch()  # kube-apiserver has opened it and has not written a line
    assert not files.has_serving_certificate()
    files.serving_certificate.with_suffix(".key").touch()
    assert files.has_serving_certificate()
