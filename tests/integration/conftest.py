"""What scenarios side by side have: one control plane with the operator on it, and each its own nodes and namespace."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.as_new import AsNew
from tests.integration.operator_process import OperatorProcess, refused
from tests.integration.pools import Pool


@pytest.fixture(scope="module")
def operator(as_new: AsNew, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """The operator on a control plane without nodes; it is refused nothing and logs no error."""
    sandbox = as_new.put_back()
    with OperatorProcess(sandbox, tmp_path_factory.mktemp("operator")) as running:
        running.wait_until_ready()
        yield running
        assert running.stop() == 0
        assert refused(sandbox) == []
        assert not any(line["level"] in {"error", "critical"} for line in running.lines())


@pytest.fixture
def pool(operator: OperatorProcess, request: pytest.FixtureRequest) -> Pool:
    """The scenario's own nodes and namespace, named after it."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:50].strip("-")
    return Pool(operator.sandbox, name)
