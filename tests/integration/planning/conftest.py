"""What scenarios of planning share: a control plane with the operator on it, and nodes and a namespace of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from respread_sandbox import Sandbox
from tests.integration.as_new import AsNew
from tests.integration.operator_process import OperatorProcess, refused
from tests.integration.pools import Pool


@pytest.fixture(scope="module")
def cluster(as_new: AsNew, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A control plane without nodes, on which the operator runs; it is refused nothing and logs no error."""
    sandbox = as_new.put_back()
    with OperatorProcess(sandbox, tmp_path_factory.mktemp("operator")) as operator:
        operator.wait_until_ready()
        yield sandbox
        assert operator.stop() == 0
        assert refused(sandbox) == []
        assert not any(line["level"] in {"error", "critical"} for line in operator.lines())


@pytest.fixture
def pool(cluster: Sandbox, request: pytest.FixtureRequest) -> Pool:
    """The scenario's own nodes and namespace, named after it."""
    return Pool(cluster, re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:50].strip("-"))
