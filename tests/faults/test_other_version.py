"""Upgrades and downgrades between this version of Respread and another one, with moves in flight."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respread.api.policy import PLURALS
from respread.api.schema import custom_resource_definition
from respread_sandbox import Sandbox
from tests.faults.rounds import POLICY, enforce, wait_for
from tests.faults.stuck import heal, skewed
from tests.integration.operator_process import REPOSITORY, OperatorProcess, evictions
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import pods_per_domain
from tests.kept_versions import OLDEST, source_of

NAMESPACE = "shop"
NAMES = ("api", "db", "web")
REPLICAS = 3
FEWEST = 2 * len(NAMES)
"""Each goes from [3, 0, 0] to [1, 1, 1]."""
IN_FLIGHT = 2
HURRIED = ("--lease-seconds", "3")
POLICY_PATH = f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{POLICY}"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = source_of(OLDEST, tmp_path_factory.mktemp("earlier"))
    if source is None:
        pytest.skip(f"this clone lacks the history back to {OLDEST}: git fetch --unshallow")
    return source


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    installed_sandbox.create_namespace(NAMESPACE)
    return lay_out(installed_sandbox, 2, 2, 2)


def evicted(cluster: Sandbox) -> Counter[str]:
    return Counter(entry["objectRef"]["name"] for entry in evictions(cluster))


def in_flight(cluster: Sandbox) -> int:
    found: int = cluster.api.get(POLICY_PATH).get("status", {}).get("summary", {}).get("inFlight", 0)
    return found


def leads(operator: OperatorProcess) -> bool:
    return any(line["event"] == "This replica leads" for line in operator.lines())


def balanced(cluster: Sandbox) -> bool:
    heal(cluster, NAMESPACE)
    return all(set(pods_per_domain(cluster, NAMESPACE, name).values()) == {1} for name in NAMES)


@pytest.mark.parametrize("upgrade", [True, False], ids=["upgrade", "downgrade"])
def test_the_next_version_continues_where_the_other_one_ended(
    cluster: Sandbox, tmp_path: Path, earlier: Path, *, upgrade: bool
) -> None:
    before, after = (earlier, REPOSITORY) if upgrade else (REPOSITORY, earlier)
    skewed(cluster, NAMESPACE, *NAMES, replicas=REPLICAS, broken=True)
    enforce(cluster, limits={"inFlight": IN_FLIGHT})
    for_downgrade = () if upgrade else ("--records", "status")
    with OperatorProcess(cluster, tmp_path, *HURRIED, *for_downgrade, source=before) as first:
        wait_for(lambda: in_flight(cluster) == IN_FLIGHT, "as many to be in flight as may be")
        with OperatorProcess(cluster, tmp_path, *HURRIED, source=after) as second:
            second.wait_until_ready()
            first.process.kill()
            wait_for(lambda: leads(second), "the other version to lead")
            # It writes the status again after its first plan.
            wait_for(lambda: in_flight(cluster) == IN_FLIGHT, "it to know what is in flight")
            assert sum(evicted(cluster).values()) == IN_FLIGHT
            wait_for(lambda: balanced(cluster), "the spread to be restored", 240)
            assert second.stop() == 0
    assert sum(evicted(cluster).values()) == FEWEST
    assert set(evicted(cluster).values()) == {1}


def ready(cluster: Sandbox) -> dict[str, Any]:
    conditions = cluster.api.get(POLICY_PATH).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Ready"), {})


@pytest.fixture
def with_later_crds(installed_sandbox: Sandbox) -> Iterator[Sandbox]:
    """A cluster whose definitions have fields that this version does not know."""
    for kind in PLURALS:
        definition = custom_resource_definition(kind)
        (version,) = definition["spec"]["versions"]
        for part in ("spec", "status"):
            fields = version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]
            fields["later"] = {"type": "string", "maxLength": 10}
        installed_sandbox.apply(json.dumps(definition))
    yield installed_sandbox
    installed_sandbox.apply(REPOSITORY / "crds")


def test_fields_of_a_later_version_are_neither_erased_nor_ignored(with_later_crds: Sandbox, tmp_path: Path) -> None:
    """An unknown field of the status is kept, and an unknown field of the spec makes the policy invalid."""
    cluster = with_later_crds
    enforce(cluster)

    def is_kept() -> bool:
        return bool(cluster.api.get(POLICY_PATH).get("status", {}).get("later") == "kept")

    def written() -> bool:
        cluster.api.request("PATCH", f"{POLICY_PATH}/status", {"status": {"later": "kept"}})
        return is_kept()

    wait_for(written, "the API server to know the fields of the later version")
    with OperatorProcess(cluster, tmp_path, *HURRIED) as operator:
        wait_for(lambda: ready(cluster).get("status") == "True", "the policy to be in force")
        assert is_kept()
        cluster.api.request("PATCH", POLICY_PATH, {"spec": {"later": "set"}})
        wait_for(lambda: ready(cluster).get("reason") == "InvalidPolicy", "the unknown field to be reported")
        assert "spec.later" in ready(cluster)["message"]
        assert is_kept()
        cluster.api.request("PATCH", POLICY_PATH, {"spec": {"later": None}})
        wait_for(lambda: ready(cluster).get("status") == "True", "the policy to be in force again")
        assert is_kept()
        assert operator.stop() == 0
