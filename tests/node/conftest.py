"""A cluster with real nodes for all tests of a run, and Respread in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.integration.helm import helm_for
from tests.integration.operator_process import policy
from tests.node import cgroups
from tests.node.cluster import RealCluster, real_cluster
from tests.node.installation import Installation
from tests.node.programs import Programs, unavailable

_OF_A_WORKER: Final = 5
"""How many numbers of clusters each worker has: some tests start one of their own."""


@pytest.fixture(scope="session")
def cgroup() -> str:
    """The path of the run's cgroup. Without one, the tests are skipped."""
    if reason := unavailable():
        pytest.skip(reason)
    if cgroups.VARIABLE not in os.environ:
        pytest.skip("these tests need namespaces of their own: run `make test-node`")
    return f"/{os.environ[cgroups.VARIABLE]}"


@pytest.fixture(scope="session")
def programs(cgroup: str) -> Programs:  # noqa: ARG001  # nothing is built where nothing can run
    return Programs.find_or_build()


@pytest.fixture(scope="session")
def cluster(
    programs: Programs, cgroup: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """Two real nodes in zone-a and zone-b, and simulated ones in three zones."""
    worker = getattr(request.config, "workerinput", {"workerid": "gw0"})["workerid"]
    number = _OF_A_WORKER * int(worker.removeprefix("gw"))
    with real_cluster(tmp_path_factory.mktemp("cluster"), programs, cgroup, number=number) as running:
        yield running


@pytest.fixture(scope="session")
def installation(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Respread, which is not installed yet."""
    return Installation(cluster, helm_for(cluster.sandbox, tmp_path_factory.mktemp("helm")))


@pytest.fixture
def installed(installation: Installation) -> Installation:
    """Respread with the chart's default values, on two nodes."""
    installation.install()
    installation.spread()
    return installation


@pytest.fixture
def namespace(cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for the workloads of a test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[-50:].strip("-")
    yield cluster.sandbox.create_namespace(name)
    cluster.sandbox.api.request("DELETE", f"/api/v1/namespaces/{name}")
    cluster.sandbox.kubectl(
        "delete", "pods", "--all", f"--namespace={name}", "--grace-period=0", "--force", "--wait=false"
    )


@pytest.fixture
def enforced(installed: Installation) -> Iterator[Installation]:
    """Respread with a policy that evicts without waiting times."""
    sandbox = installed.cluster.sandbox
    sandbox.apply(json.dumps(policy()))
    yield installed
    sandbox.kubectl("delete", "clusterrebalancepolicy", "test")
