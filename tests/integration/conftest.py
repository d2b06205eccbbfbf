"""Fixtures for parallel scenarios: one control plane with the operator, and nodes and a namespace for each scenario."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

import pytest

from tests.integration.operator_process import OperatorProcess, refused
from tests.integration.pools import Pool
from tests.integration.reused_sandbox import ReusedSandbox

_LONGEST_NAME: Final = 50


@pytest.fixture(scope="module")
def operator(reused_sandbox: ReusedSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """The operator on a control plane without nodes. No request of the operator is forbidden, and it logs no error."""
    sandbox = reused_sandbox.reset()
    with OperatorProcess(sandbox, tmp_path_factory.mktemp("operator")) as running:
        running.wait_until_ready()
        yield running
        assert running.stop() == 0
        assert refused(sandbox) == []
        assert not any(line["level"] in {"error", "critical"} for line in running.lines())


@pytest.fixture
def pool(operator: OperatorProcess, request: pytest.FixtureRequest) -> Pool:
    """The scenario's own nodes and namespace, named after it."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    if len(name) > _LONGEST_NAME:  # The parameters are at the end.
        name = f"{name[: _LONGEST_NAME - 9].strip('-')}-{zlib.crc32(name.encode()):08x}"
    return Pool(operator.sandbox, name)
