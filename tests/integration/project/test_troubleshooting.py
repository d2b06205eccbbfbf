"""The commands of the pages for troubleshooting can be typed as they are, on a cluster with their workload."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from respread_sandbox import Sandbox
from tests.integration.operator_process import wait_until_policies_are_served
from tests.integration.workloads import wait_for_ready_pods

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = ROOT / "docs"
SHOP: Final = "shop"
NEEDS_A_CONTAINER: Final = "kubectl logs"
"""Pods of simulated nodes have no logs."""
ENDLESS: Final = re.compile(r" (-w|--watch)\b")


def commands(page: Path) -> set[str]:
    """Return the lines of the shell blocks of a page that end by themselves."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = {line for block in blocks for line in block.splitlines()}
    return {line for line in lines if NEEDS_A_CONTAINER not in line and not ENDLESS.search(line)}


@pytest.fixture(scope="module")
def programs(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cluster with Respread's objects and the workload of the page; the environment of a user's shell."""
    sandbox.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
    wait_until_policies_are_served(sandbox)
    sandbox.kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / "base"))
    sandbox.kubectl("create", "namespace", SHOP)
    sandbox.kubectl("apply", "-n", SHOP, "-f", str(DOCS / "quick-start" / "web.yaml"))
    wait_for_ready_pods(sandbox, SHOP, "web", 12)
    folder = tmp_path_factory.mktemp("bin")
    (folder / "kubectl").symlink_to(sandbox.kubectl_path)
    (folder / "respread").symlink_to(Path(sys.executable).with_name("respread"))
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HOME": str(tmp_path_factory.mktemp("home")),
        "KUBECONFIG": str(sandbox.kubeconfig),
    }


def types(line: str, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line in a shell, in a clone of the repository."""
    shell = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(shell, cwd=ROOT, env=programs, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("page", ["troubleshooting", "rollout", "runbooks/RespreadConstraintViolated"])
def test_every_command_of_the_page_can_be_typed(page: str, programs: dict[str, str]) -> None:
    lines = commands(DOCS / f"{page}.md")
    assert lines
    failed = {line: done.stderr for line in sorted(lines) if (done := types(line, programs)).returncode}
    assert failed == {}


def test_a_line_that_can_not_be_typed_fails(programs: dict[str, str]) -> None:
    assert "unknown flag" in types("kubectl get pods --frobnicate | cat", programs).stderr
    assert types("kubectl get pods --frobnicate | cat", programs).returncode != 0
