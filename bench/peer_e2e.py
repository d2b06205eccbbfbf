"""descheduler's own e2e test of its topology spread plugin, unchanged, with Respread in descheduler's place.

    python -m bench.peer_e2e

The test is compiled from the downloaded module. It creates Deployments and a pod of descheduler on a control plane, and
judges which pods are gone and how the others are spread. Pods are simulated here, so descheduler's does nothing, and
`respread run` is a process beside it. The table is written into docs/compare.md.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from bench.compare.page import PAGE
from bench.peer import cache_folder, module_directory, run_go
from bench.peer_cases import PARTS
from bench.sides import HARD_AND_SOFT
from respread_sandbox import Sandbox, SandboxOptions
from tests.integration.operator_process import OperatorProcess, evictions, install, policy
from tests.integration.workloads import scale

FILES: Final = ("e2e_test.go", "e2e_topologyspreadconstraint_test.go")
"""The files of the package that this test needs. The others import clients of kinds that play no part in it."""
TEST: Final = "TestTopologySpreadConstraint"
RIGHTS: Final = "kubernetes/base/rbac.yaml"
QUIET_PERIOD: Final = "15s"
"""Longer than the test waits between two looks: it counts from the pods that it sees before it starts descheduler."""


def compiled() -> Path:
    """Return the compiled test, after compiling it once for its version.

    Raises:
        SystemExit: Go is missing or failed.
    """
    program = cache_folder() / "e2e.test"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        files = [f"test/e2e/{each}" for each in FILES]
        partial = program.with_suffix(".partial")
        options = ("-c", "-vet=off", "-mod=readonly", "-o", str(partial))
        run_go("test", *options, *files, directory=module_directory(program.parent))
        partial.rename(program)
    return program


def run(directory: Path) -> Iterator[str]:
    """Run the test beside the operator, and yield a line of a Markdown table for each of its cases.

    Args:
        directory: for the operator's log.

    Raises:
        SystemExit: a case failed; the message is what the test said.
    """
    test = compiled()
    # As the peer's own cluster: one node in each of two zones.
    with Sandbox.start(SandboxOptions(nodes=2, zones=2, audit=True)) as sandbox:
        install(sandbox)
        scale(sandbox, "respread-system", "respread", 0)  # the operator is a process
        sandbox.apply(module_directory(cache_folder()) / RIGHTS)  # the account of descheduler's pod
        sandbox.kubectl("delete", "clusterrebalancepolicies", "--all")
        made = policy(quietPeriod=QUIET_PERIOD, constraints={"whenUnsatisfiable": list(HARD_AND_SOFT)})
        sandbox.apply(yaml.safe_dump(made))
        with OperatorProcess(sandbox, directory) as operator:
            operator.wait_until_ready()
            done = subprocess.run(  # noqa: S603 - the test that was compiled for it
                [str(test), f"-test.run=^{TEST}$", "-test.v", "--descheduler-image=simulated"],
                env=os.environ | {"KUBECONFIG": str(sandbox.kubeconfig)},
                capture_output=True,
                text=True,
                check=False,
            )
            evicted = Counter(each["objectRef"]["name"].rsplit("-", 2)[0] for each in evictions(sandbox))
    verdicts = re.findall(rf"^ *--- (\w+): {TEST}/(\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not verdicts:
        raise SystemExit(done.stdout + done.stderr)
    yield "| e2e case of descheduler | its verdict | evictions |"
    yield "|---|---|---|"
    for verdict, name in verdicts:
        yield f"| {name} | {verdict} | {evicted[name]} |"


def main() -> None:
    """Run the test, print the table, and write it."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        text = "".join(f"{line}\n" for line in run(Path(directory)))
    PAGE.write_text(PARTS.write(PAGE.read_text(encoding="utf-8"), "peer e2e", text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
