"""Records of policies on a real API server: refused, deleted, garbage collected, and without their CRDs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from respread.cluster.stores import RECORDS, full_name
from respread_sandbox import Sandbox
from tests.faults.operators import Replica, holder
from tests.faults.proxy import Asked, Fault, FaultProxy, no_fault
from tests.faults.rounds import POLICY, enforce, wait_for
from tests.faults.stuck import heal, skewed
from tests.integration.definitions import delete_definitions
from tests.integration.operator_process import REPOSITORY, OperatorProcess, evictions, refused, requests
from tests.integration.records import record
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import pods_per_domain

NAMESPACE = "shop"
API = "/apis/respread.dev/v1alpha1"
POLICY_PATH = f"{API}/clusterrebalancepolicies/{POLICY}"
RECORDS_PATH = f"{API}/clusterrebalancepolicyrecords"
NAMES = ("api", "db", "web")
REPLICAS = 3
FEWEST = 2 * len(NAMES)
"""Each goes from [3, 0, 0] to [1, 1, 1]."""
IN_FLIGHT = 2
RECORD_KINDS = tuple(map(full_name, RECORDS.values()))


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    installed_sandbox.create_namespace(NAMESPACE)
    return lay_out(installed_sandbox, 2, 2, 2)


def balanced(cluster: Sandbox) -> bool:
    counts = [set(pods_per_domain(cluster, NAMESPACE, name).values()) for name in NAMES]
    heal(cluster, NAMESPACE)  # after the pods were counted, or the last replacement may never become Ready
    return all(each == {1} for each in counts)


def refuse_records(asked: Asked) -> Fault | None:
    return Fault("503") if asked.path.startswith(RECORDS_PATH) and asked.method in {"POST", "PATCH"} else None


def test_no_pod_is_evicted_while_its_policys_record_can_not_be_written(cluster: Sandbox, tmp_path: Path) -> None:
    skewed(cluster, NAMESPACE, *NAMES, replicas=REPLICAS, broken=False)
    enforce(cluster)
    with (
        FaultProxy(cluster, refuse_records) as proxy,
        Replica(cluster, proxy, tmp_path, "one", "--no-leader-election") as replica,
    ):
        wait_for(lambda: proxy.counts["503"] >= 3, "several attempts to write the record")
        wait_for(lambda: "written down" in str(cluster.api.get(POLICY_PATH).get("status")), "the status to say why")
        assert evictions(cluster) == []
        proxy.choose = no_fault
        wait_for(lambda: balanced(cluster), "the spread to be restored")
        assert replica.stop() == 0
    assert len(evictions(cluster)) == FEWEST


def test_a_clean_stop_writes_the_last_status_and_record_before_the_lease_is_released(
    cluster: Sandbox, tmp_path: Path
) -> None:
    skewed(cluster, NAMESPACE, *NAMES, replicas=REPLICAS, broken=True)
    enforce(cluster, limits={"inFlight": IN_FLIGHT})
    with OperatorProcess(cluster, tmp_path) as operator:
        wait_for(lambda: len(evictions(cluster)) == IN_FLIGHT, "the moves to be made")
        assert operator.stop() == 0
    summary = cluster.api.get(POLICY_PATH)["status"]["summary"]
    assert (summary["evicted"], summary["inFlight"]) == (IN_FLIGHT, IN_FLIGHT)
    in_flight = {each["uid"] for each in record(cluster, POLICY_PATH)["movesInFlight"]}
    assert len(in_flight) == IN_FLIGHT
    written = [entry["objectRef"]["resource"] for entry in requests(cluster) if entry["verb"] in {"patch", "update"}]
    kinds = {"leases", "clusterrebalancepolicies", "clusterrebalancepolicyrecords"}
    assert [each for each in written if each in kinds][-1] == "leases"
    assert holder(cluster) == ""


def test_a_deleted_record_is_written_again_and_is_deleted_with_its_policy(cluster: Sandbox, tmp_path: Path) -> None:
    skewed(cluster, NAMESPACE, *NAMES, replicas=REPLICAS, broken=True)
    enforce(cluster, limits={"inFlight": IN_FLIGHT})
    with OperatorProcess(cluster, tmp_path) as operator:
        wait_for(lambda: len(record(cluster, POLICY_PATH)["movesInFlight"]) == IN_FLIGHT, "the moves to be recorded")
        uid = cluster.api.get(POLICY_PATH)["metadata"]["uid"]
        path = f"{RECORDS_PATH}/{uid}"
        (owner,) = cluster.api.get(path)["metadata"]["ownerReferences"]
        assert (owner["name"], owner["uid"]) == (POLICY, uid)
        cluster.api.request("DELETE", path)
        wait_for(lambda: balanced(cluster), "the spread to be restored")
        wait_for(lambda: cluster.api.exists(path), "another record")
        wait_for(lambda: not record(cluster, POLICY_PATH)["movesInFlight"], "the last move to end")
        assert operator.stop() == 0
    assert len(evictions(cluster)) == FEWEST
    assert refused(cluster) == []
    cluster.api.request("DELETE", POLICY_PATH)
    wait_for(lambda: not cluster.api.exists(path), "the garbage collector to delete the record")


@pytest.fixture
def without_records(cluster: Sandbox) -> Iterator[Sandbox]:
    """A cluster without the CRDs of records."""
    delete_definitions(cluster, *RECORD_KINDS)
    yield cluster
    restore_records(cluster)


def restore_records(cluster: Sandbox) -> None:
    cluster.apply(REPOSITORY / "crds")
    cluster.wait_for_definitions(*RECORD_KINDS)


def test_nothing_is_evicted_without_the_crds_of_records(without_records: Sandbox, tmp_path: Path) -> None:
    """The operator waits for them when it starts, and if they are deleted while it leads."""
    cluster = without_records
    skewed(cluster, NAMESPACE, *NAMES, replicas=REPLICAS, broken=True)
    enforce(cluster, limits={"inFlight": IN_FLIGHT})
    with OperatorProcess(cluster, tmp_path) as operator:
        wait_for(lambda: "not installed" in str(operator.lines()), "the log to say what is missing")
        assert evictions(cluster) == []
        restore_records(cluster)
        operator.wait_until_ready()
        wait_for(lambda: len(evictions(cluster)) == IN_FLIGHT, "the moves to be made")
        delete_definitions(cluster, *RECORD_KINDS)
        made = len(evictions(cluster))

        def said() -> bool:
            heal(cluster, NAMESPACE)
            return "written down" in str(cluster.api.get(POLICY_PATH).get("status"))

        wait_for(said, "the status to say why")
        assert len(evictions(cluster)) == made
        restore_records(cluster)
        wait_for(lambda: balanced(cluster), "the spread to be restored")
        assert operator.stop() == 0
    assert len(evictions(cluster)) == FEWEST
