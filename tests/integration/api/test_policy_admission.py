"""The real API server accepts valid policies, sets the documented defaults, and names the field of each invalid one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from respread.api.conditions import PolicyOutcome, next_status
from respread.api.decoding import decode_policy, decode_status
from respread.api.policy import API_VERSION, PLURALS, PolicyKind
from respread.api.schema import custom_resource_definition
from respread.api.status import (
    MAX_VIOLATIONS,
    AffectedWorkload,
    BlockedCount,
    DomainCount,
    PaceEstimate,
    PolicyStatus,
    Summary,
    ViolatedConstraint,
    Violation,
    encode_status,
)
from respread.api.structures import write_value
from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError
from respread_sandbox.options import SandboxError
from tests.integration.definitions import DEFINITIONS
from tests.policy_specs import BAD_SPECS, CLUSTER, GOOD_SPECS, NAMESPACED, WRONG_THOUGH_ACCEPTED, BadSpec, enforces
from tests.processes import wait_until

CRDS = Path(__file__).parents[3] / "crds"
NAMESPACE = "default"


@pytest.fixture(scope="module")
def cluster(api_sandbox: Sandbox) -> Sandbox:
    """An API server with both kinds of policies."""
    api_sandbox.apply(CRDS)
    api_sandbox.wait_for_definitions(*(f"{plural}.respread.dev" for plural in PLURALS.values()))
    return api_sandbox


@pytest.fixture
def policies(cluster: Sandbox) -> Iterator[Sandbox]:
    """The API server of `cluster`, without policies before and after the test."""
    yield cluster
    for kind in PLURALS:
        cluster.api.request("DELETE", path(kind))


def path(kind: PolicyKind, name: str = "", *, query: str = "") -> str:
    place = f"/namespaces/{NAMESPACE}" if kind == NAMESPACED else ""
    return f"/apis/{API_VERSION}{place}/{PLURALS[kind]}{f'/{name}' if name else ''}{query}"


def _of(kind: PolicyKind) -> list[str]:
    """Return kubectl's arguments for policies of a kind."""
    return [PLURALS[kind], *(["-n", NAMESPACE] if kind == NAMESPACED else [])]


def manifest(kind: PolicyKind, spec: Any, name: str = "tested") -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def create(cluster: Sandbox, kind: PolicyKind, spec: Any, name: str = "tested", *, dry_run: bool = False) -> Any:
    query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
    return cluster.api.request("POST", path(kind, query=query), manifest(kind, spec, name))


def descriptions(kind: PolicyKind, field: str) -> str:
    """Return what the schema says about a field, such as spec.windows.0.schedule, and about those that hold it."""
    (version,) = custom_resource_definition(kind)["spec"]["versions"]
    node = version["schema"]["openAPIV3Schema"]
    said = []
    for name in field.split("."):
        node = node["items"] if name.isdigit() else node["properties"][name]
        said.append(node.get("description", ""))
    return " ".join(said)


def fields(value: Any, at: str = "spec") -> Iterator[str]:
    """Yield the path of every value in a spec, without nulls, empty lists and empty objects."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from fields(each, f"{at}.{key}")
    elif value is not None:
        yield at


def test_the_schemas_are_structural(cluster: Sandbox) -> None:
    for plural in PLURALS.values():
        definition = cluster.api.get(f"{DEFINITIONS}/{plural}.respread.dev")
        conditions = {each["type"]: each["status"] for each in definition["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize("name", GOOD_SPECS)
def test_a_valid_spec_is_stored_with_the_defaults_of_the_types(cluster: Sandbox, name: str) -> None:
    kind, spec = GOOD_SPECS[name]
    stored = create(cluster, kind, spec, dry_run=True)
    read = decode_policy(kind, stored)
    given = decode_policy(kind, manifest(kind, spec))
    assert read.problems == ()
    assert read.spec == given.spec
    left_out = set(fields(write_value(given.spec))) - set(fields(stored["spec"]))
    assert set(fields(stored["spec"])) <= set(fields(write_value(given.spec)))
    assert {each for each in left_out if " Default: " not in descriptions(kind, each)} == set()


@pytest.mark.parametrize("how", [(), ("--server-side",)])
def test_an_applied_spec_replaces_the_defaults_of_the_policy_before(policies: Sandbox, how: tuple[str, ...]) -> None:
    other = {"namespaceSelector": {"matchLabels": {"a": "b"}}, "victims": {"priorityThreshold": {"value": 1}}}
    for spec in ({}, other):
        policies.kubectl("apply", "-f", "-", *how, stdin=json.dumps(manifest(CLUSTER, spec)))
        stored = decode_policy(CLUSTER, policies.api.get(path(CLUSTER, "tested")))
        assert stored.spec == decode_policy(CLUSTER, manifest(CLUSTER, spec)).spec


@pytest.mark.parametrize("bad", BAD_SPECS, ids=lambda bad: bad.id)
def test_an_invalid_spec_is_rejected_with_a_message_that_names_the_field(cluster: Sandbox, bad: BadSpec) -> None:
    with pytest.raises(ApiError) as refused:
        create(cluster, bad.kind, bad.spec, dry_run=True)
    message = str(refused.value)
    assert refused.value.status in {400, 422}, message
    assert bad.field in message
    assert bad.says in message


@pytest.mark.parametrize(("spec", "field", "says"), WRONG_THOUGH_ACCEPTED)
def test_mistakes_that_admission_does_not_detect_are_in_the_ready_condition(
    cluster: Sandbox, spec: dict[str, Any], field: str, says: str
) -> None:
    policy = decode_policy(CLUSTER, create(cluster, CLUSTER, {**spec, "mode": "Enforce"}, dry_run=True))
    assert not enforces(policy)
    ready = next_status(policy, PolicyStatus(), None, now=datetime.now(UTC)).condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "InvalidPolicy")
    assert field in ready.message
    assert says in ready.message


def test_a_force_delete_from_an_earlier_version_is_in_the_ready_condition(policies: Sandbox) -> None:
    at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/eviction/properties/gracePeriodSeconds"

    def set_minimum(seconds: int) -> None:
        patch = json.dumps([{"op": "replace", "path": f"{at}/minimum", "value": seconds}])
        policies.kubectl("patch", "crd", f"{PLURALS[CLUSTER]}.respread.dev", "--type=json", "-p", patch)

    set_minimum(0)
    force = {"mode": "Enforce", "eviction": {"gracePeriodSeconds": 0}}
    try:
        wait_until(lambda: _is_taken(policies, force), "the API server to take it, as it once did")
        create(policies, CLUSTER, force)
    finally:
        set_minimum(1)
    wait_until(lambda: not _is_taken(policies, force), "the API server to refuse it, as it does now")
    policy = decode_policy(CLUSTER, policies.api.get(path(CLUSTER, "tested")))
    assert not enforces(policy)
    assert policy.spec.eviction.grace_period_seconds is None
    status = next_status(policy, PolicyStatus(), None, now=datetime.now(UTC))
    policies.api.request("PATCH", f"{path(CLUSTER, 'tested')}/status", {"status": encode_status(status)})
    ready = decode_status(policies.api.get(path(CLUSTER, "tested"))).condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", "InvalidPolicy")
    assert "spec.eviction.gracePeriodSeconds: must be a whole number from 1 to 86400, or left out" in ready.message


def _is_taken(policies: Sandbox, spec: dict[str, Any]) -> bool:
    try:
        create(policies, CLUSTER, spec, name="tried", dry_run=True)
    except ApiError:
        return False
    return True


def test_the_spec_may_be_omitted(policies: Sandbox) -> None:
    body = manifest(CLUSTER, None)
    del body["spec"]
    stored = policies.api.request("POST", path(CLUSTER, query="?fieldValidation=Strict"), body)
    assert stored["spec"]["mode"] == "DryRun"


def test_kubectl_rejects_a_misspelled_field_by_default(cluster: Sandbox) -> None:
    text = f"{{apiVersion: {API_VERSION}, kind: ClusterRebalancePolicy, metadata: {{name: a}}, spec: {{mod: Enforce}}}}"
    with pytest.raises(SandboxError, match=r'unknown field "spec\.mod"'):
        cluster.apply(text)


def test_a_misspelled_field_is_pruned_without_strict_validation(policies: Sandbox) -> None:
    body = manifest(CLUSTER, {"mod": "Enforce", "limits": {"inFligt": 1}})
    stored = policies.api.request("POST", path(CLUSTER, query="?fieldValidation=Ignore"), body)
    assert "mod" not in stored["spec"]
    assert "inFligt" not in stored["spec"]["limits"]


def test_short_names_and_category_find_the_policies(policies: Sandbox) -> None:
    create(policies, CLUSTER, {}, "everywhere")
    create(policies, NAMESPACED, {}, "here")
    assert policies.kubectl("get", "crbp", "-o", "name").split() == ["clusterrebalancepolicy.respread.dev/everywhere"]
    assert policies.kubectl("get", "rbp", "-n", NAMESPACE, "-o", "name").split() == [
        "rebalancepolicy.respread.dev/here"
    ]
    both = policies.kubectl("get", "respread", "-n", NAMESPACE, "-o", "name").split()
    assert both == ["clusterrebalancepolicy.respread.dev/everywhere", "rebalancepolicy.respread.dev/here"]


@pytest.mark.parametrize("kind", [CLUSTER, NAMESPACED])
def test_the_status_is_a_subresource_and_shown_in_columns(policies: Sandbox, kind: PolicyKind) -> None:
    created = create(policies, kind, {"mode": "Enforce"})
    policy = decode_policy(kind, created)
    now = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    status = next_status(policy, decode_status(created), full_outcome(now), now=now)

    url = path(kind, "tested")
    written = policies.api.request(
        "PATCH", f"{url}/status", {"spec": {"mode": "DryRun"}, "status": encode_status(status)}
    )
    assert written["spec"]["mode"] == "Enforce"
    assert written["metadata"]["generation"] == created["metadata"]["generation"]
    assert decode_status(written) == status
    later = now + timedelta(hours=1)
    assert next_status(policy, decode_status(written), full_outcome(now, plan_time=later), now=later) == status

    changed = policies.api.request("PATCH", url, {"spec": {"mode": "DryRun"}, "status": {"summary": {"groups": 1}}})
    assert decode_status(changed) == status
    assert changed["metadata"]["generation"] == created["metadata"]["generation"] + 1

    shown = policies.kubectl("get", *_of(kind), "tested")
    header, row = shown.splitlines()
    assert header.split() == [
        *("NAME", "MODE", "READY", "REASON", "BALANCED"),
        *("GROUPS", "VIOLATED", "WORST-SKEW", "PLANNED", "EVICTED", "REMAINING", "AGE"),
    ]
    cells = ["tested", "DryRun", "True", "PartlyOverridden", "False", "412", "25", "40", "5", "87", "41m"]
    assert row.split()[:-1] == cells
    wide = policies.kubectl("get", *_of(kind), "tested", "-o", "wide").splitlines()
    more = [re.split(r" {2,}", line.split(maxsplit=12)[-1].strip()) for line in wide]
    assert more == [["BOUND-BY", "UNSATISFIABLE", "INEFFECTIVE"], ["inFlightPerWorkload 1", "0", "0"]]


def test_policies_are_selected_by_their_mode(policies: Sandbox) -> None:
    for name, mode in (("acts", "Enforce"), ("looks", "DryRun"), ("says-nothing", None)):
        create(policies, CLUSTER, {} if mode is None else {"mode": mode}, name)
    create(policies, NAMESPACED, {"prevention": {"podDeletionCost": "Enabled"}}, "prevents")

    def selected(kind: PolicyKind, selector: str) -> list[str]:
        found = policies.kubectl("get", PLURALS[kind], "-A", "--field-selector", selector, "-o", "name").split()
        return [each.rpartition("/")[2] for each in found]

    assert selected(CLUSTER, "spec.mode=Enforce") == ["acts"]
    assert selected(CLUSTER, "spec.mode!=Enforce") == ["looks", "says-nothing"]
    assert selected(NAMESPACED, "spec.prevention.podDeletionCost=Enabled") == ["prevents"]


def documented_policies() -> Iterator[dict[str, Any]]:
    """Yield every policy in the documentation and the manifests."""
    root = CRDS.parent
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for document in yaml.safe_load_all(block):
                if isinstance(document, dict) and document.get("apiVersion") == API_VERSION:
                    yield document
    yield yaml.safe_load((root / "manifests" / "base" / "policy.yaml").read_text(encoding="utf-8"))


def test_the_api_server_stores_a_spec_as_written_so_that_gitops_tools_see_no_drift(cluster: Sandbox) -> None:
    documents = list(documented_policies())
    assert len(documents) >= 3
    for document in documents:
        kind: PolicyKind = document["kind"]
        stored = create(cluster, kind, document["spec"], dry_run=True)["spec"]
        assert _dropped(document["spec"], stored) == [], document["metadata"]


def _dropped(given: Any, stored: Any, at: str = "spec") -> list[str]:
    """Return where a stored value differs from the given one. Additions by the API server are ignored."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return [
            path
            for name, each in given.items()
            for path in (_dropped(each, stored[name], f"{at}.{name}") if name in stored else [f"{at}.{name}"])
        ]
    if isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        return [
            path
            for index, (one, other) in enumerate(zip(given, stored, strict=True))
            for path in _dropped(one, other, f"{at}[{index}]")
        ]
    return [] if given == stored else [at]


HEADROOM = 5
"""The factor by which the rules' cost is below the limit of the API server."""


def try_with_rules(cluster: Sandbox, kind: PolicyKind, *, times: int, bounded: bool) -> None:
    """Make the API server validate a definition whose rules are each evaluated this many times."""
    definition = custom_resource_definition(kind)
    for node in _schemas(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
        for each in node.get("x-kubernetes-validations", ()):
            each["rule"] = " && ".join([f"({each['rule']})"] * times)
        if not bounded:
            node.pop("maxItems", None)
    definition["metadata"]["name"] = "copies.cost.example"
    definition["spec"] |= {"group": "cost.example"}
    definition["spec"]["names"] = {"kind": "Copy", "listKind": "CopyList", "plural": "copies", "singular": "copy"}
    cluster.api.request("POST", f"{DEFINITIONS}?dryRun=All", definition)


@pytest.mark.parametrize("kind", [CLUSTER, NAMESPACED])
def test_the_cel_rules_use_a_small_part_of_the_allowed_cost(cluster: Sandbox, kind: PolicyKind) -> None:
    try_with_rules(cluster, kind, times=HEADROOM, bounded=True)
    with pytest.raises(ApiError, match="exceeds budget"):  # it estimates costs with the maximum sizes of lists
        try_with_rules(cluster, kind, times=HEADROOM, bounded=False)


def _schemas(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for each in node.values():
            yield from _schemas(each)


def test_a_condition_type_exists_only_once(policies: Sandbox) -> None:
    create(policies, CLUSTER, {})
    condition = {"type": "Ready", "status": "True", "reason": "Valid", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    with pytest.raises(ApiError, match=r"status\.conditions\[1\]: Duplicate value"):
        policies.api.request("PATCH", f"{path(CLUSTER, 'tested')}/status", {"status": {"conditions": [condition] * 2}})


@pytest.mark.parametrize(
    ("field", "description"),
    [
        ("spec.limits.inFlightPerWorkload", "rounded down, but at least 1"),
        ("spec.victims", "Which pods may be evicted."),
        ("status.violations.domains", "the fullest first"),
    ],
)
def test_kubectl_explains_every_field(cluster: Sandbox, field: str, description: str) -> None:
    explained = " ".join(cluster.kubectl("explain", f"clusterrebalancepolicies.{field}").split())
    assert description in explained


def full_outcome(now: datetime, *, plan_time: datetime | None = None) -> PolicyOutcome:
    """Return the largest outcome that a status can hold."""
    violations = tuple(
        Violation(
            namespace=f"{'n' * 60}-{index:02}",
            workloads=tuple(AffectedWorkload("D" * 63, f"{'w' * 250}-{number:02}") for number in range(25)),
            constraint=ViolatedConstraint(
                topology_key=f"{'d' * 253}/{'k' * 63}", when_unsatisfiable="DoNotSchedule", max_skew=1
            ),
            skew=40 - index,
            domains=tuple(DomainCount("z" * 58 + f"{domain:05}", domain) for domain in range(5000)),
            planned_moves=3,
            reason="NoFeasibleNode",
            message="m" * 5000,
        )
        for index in range(MAX_VIOLATIONS + 5)
    )
    return PolicyOutcome(
        summary=Summary(
            groups=412, violated=25, worst_skew=40, pods=9120, planned_evictions=5, in_flight=1, evicted=87
        ),
        pace=PaceEstimate(evictions_left=5, remaining="41m", seconds=2460, bound_by="inFlightPerWorkload 1"),
        violations=violations,
        blocked=(BlockedCount(reason="NoFeasibleNode", groups=25), BlockedCount(reason="ProtectedPod", pods=30)),
        overridden_by=tuple(f"shop/{'p' * 240}-{index}" for index in range(40)),
        plan_time=plan_time or now,
        last_eviction_time=now,
    )
