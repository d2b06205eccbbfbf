"""The control plane's programs are built only if selected tests need them, before the first test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


def run_pytest(home: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest as a user who has neither the programs nor Go."""
    environment = {"HOME": str(home), "PATH": str(home)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "selection",
    [
        ["tests/integration/sandbox/test_behaviour.py", "-m", "not controlplane"],
        ["tests/integration/sandbox/test_faults.py", "-k", "impossible_numbers"],
        ["tests/integration/sandbox/test_behaviour.py", "--collect-only"],
    ],
)
def test_nothing_is_built_for_tests_that_need_no_control_plane(tmp_path: Path, selection: list[str]) -> None:
    code, output = run_pytest(tmp_path, *selection)
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), output
    assert "Go was not found" not in output
    assert not (tmp_path / ".cache").exists()


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_without_programs_and_go_each_test_fails_with_advice(tmp_path: Path, workers: list[str]) -> None:
    code, output = run_pytest(
        tmp_path, "tests/integration/sandbox/test_behaviour.py", "-k", "nodes_are or jobs", *workers
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "2 errors" in output
    assert "Go was not found. The sandbox builds a Kubernetes control plane once" in output
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_build_shows_its_progress_despite_captured_output(tmp_path: Path, workers: list[str]) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\nif [ "$1" = env ]; then echo go1.26.3; else echo no network; exit 1; fi\n')
    go.chmod(0o755)
    _, output = run_pytest(tmp_path, "tests/integration/sandbox/test_behaviour.py", "-k", "nodes_are", *workers)
    assert "no network" in output
    assert re.search(r"^Building etcd, kube-apiserver, .* …$", output, re.MULTILINE), output
