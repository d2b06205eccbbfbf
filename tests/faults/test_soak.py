"""A short soak in every run of the tests; `make soak SECONDS=600` runs a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from respread.sandbox import Binaries, Sandbox, SandboxOptions
from tests.faults.rounds import enforce
from tests.faults.soak import QUIET_PERIOD, Soak
from tests.integration.operator_process import install


@pytest.mark.controlplane
@pytest.mark.timeout(600)
def test_a_minute_of_faults_costs_no_pod_too_many(binaries: Binaries, tmp_path: Path) -> None:
    said: list[str] = []
    with Sandbox.start(SandboxOptions(nodes_per_zone=(3, 3, 3)), binaries=binaries) as sandbox:
        install(sandbox)
        enforce(sandbox, quietPeriod=QUIET_PERIOD)
        findings = Soak(sandbox, tmp_path, 20261121, said.append).run(60)
    print(findings)
    assert findings.clean, "\n".join([*said, str(findings)])
    assert findings.evictions == findings.fewest
    assert findings.faults.total() > 30
    assert findings.faults["(ended by itself)"] == 0, (tmp_path / "one.log").read_text()[-4000:]
