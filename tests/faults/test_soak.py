"""A short soak in every run of all tests; `make soak SECONDS=600` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from respread_sandbox import Binaries, Sandbox
from tests.faults.hardships import prepare
from tests.faults.rounds import Workload, enforce
from tests.faults.soak import OPTIONS, QUIET_PERIOD, Soak
from tests.integration.operator_process import install


def test_the_number_of_needed_evictions_is_computed_beforehand() -> None:
    for replicas in range(9):
        one, two = Workload("", "", replicas, 1), Workload("", "", replicas, 2)
        assert one.most_evictions == one.fewest_evictions
        assert two.most_evictions - two.fewest_evictions in {0, 1}
    assert Workload("", "", 5, 2).fewest_evictions == 2  # to [3, 1, 1]
    assert Workload("", "", 5, 2).most_evictions == 3  # via [3, 2, 0], which only the scheduler can avoid


@pytest.mark.long
@pytest.mark.controlplane
def test_a_minute_of_random_faults_causes_no_unnecessary_eviction(binaries: Binaries, tmp_path: Path) -> None:
    said: list[str] = []
    with Sandbox.start(OPTIONS, binaries=binaries) as sandbox:
        install(sandbox)
        prepare(sandbox)
        enforce(sandbox, quietPeriod=QUIET_PERIOD)
        findings = Soak(sandbox, tmp_path, 20261121, said.append).run(60)
    print(findings)
    assert findings.clean, "\n".join([*said, str(findings)])
    assert findings.evictions >= findings.fewest
    assert findings.faults.total() > 0  # about a hundred on an idle machine
    assert findings.faults["(ended by itself)"] == 0, (tmp_path / "one.log").read_text()[-4000:]
