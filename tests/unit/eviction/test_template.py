"""Differences between a pod and its controller's template that affect scheduling are found and described."""

from __future__ import annotations

from typing import Any

import pytest

from respread.api.reasons import Reason
from respread.cluster.decode.decoder import Decoder
from respread.eviction.owners.admission import admitted
from respread.eviction.owners.replacements import why_differs
from tests.eviction_moves import group

CONTAINERS = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]


def difference(pod: dict[str, Any], template: dict[str, Any], labels: dict[str, str] | None = None) -> str | None:
    """Return the message for a pod and a template with one container and the given fields."""
    document = {
        "metadata": {"name": "web-1", "namespace": "default", "uid": "uid", "labels": labels or {"app": "web"}},
        "spec": {"containers": CONTAINERS, "nodeName": "node-1", **pod},
        "status": {"phase": "Running"},
    }
    made = admitted(
        {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": CONTAINERS, **template}}, document, ()
    )
    held = why_differs(document, made, (group("default"),), Decoder())
    assert held is None or held.reason is Reason.TEMPLATE_DIFFERS
    return None if held is None else held.message


@pytest.mark.parametrize(
    ("pod", "template", "words"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, {}, 'nodeSelector is {"disk":"ssd"}, in the template absent'),
        (
            {"nodeSelector": {"disk": "x" * 200}},
            {},
            'nodeSelector is {"disk":"' + "x" * 111 + "…, in the template absent",
        ),
        ({}, {"schedulerName": "own"}, "schedulerName is default-scheduler, in the template own"),
        ({}, {"nodeName": "node-2"}, "nodeName is chosen by the scheduler, in the template node-2"),
        ({"nodeSelector": {"disk": "x" * 109}}, {}, "x" * 109 + '"}, in the template absent'),
        ({}, {"schedulingGates": [{"name": "wait"}]}, "schedulingGates is absent, in the template true"),
        (
            {},
            {"schedulerName": "a", "nodeName": "a", "nodeSelector": {"a": "b"}, "schedulingGates": [{"name": "wait"}]},
            "in the template a; schedulingGates is absent, in the template true; restart it or",
        ),
        (
            {},
            {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
            'tolerations is absent, in the template [{"key":"dedicated","operator":"Exists"}]',
        ),
        (
            {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "5"}}}]},
            {},
            "the request for cpu is 1500m, in the template 1000m; the request for memory is 5, in the template 0",
        ),
        (
            {"runtimeClassName": "kata", "overhead": {"cpu": "1"}},
            {},
            "runtimeClassName is kata, in the template absent",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_difference_names_the_field_and_both_values(
    pod: dict[str, Any], template: dict[str, Any], words: str
) -> None:
    assert words in (difference(pod, template) or "")


def test_labels_count_if_the_template_or_a_selector_has_them() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"matchLabels": {"role": "leader"}, "matchExpressions": [{"key": "track", "operator": "Exists"}]}
    asking = {"topologySpreadConstraints": [constraint, {**constraint, "labelSelector": selector}]}
    leader = {"app": "web", "role": "leader", "track": "new"}
    assert difference({}, {}, leader) is None
    words = "the label role is leader, in the template absent; the label track is new, in the template absent"
    assert words in (difference(asking, asking, leader) or "")
    assert "the label app is api, in the template web" in (difference({}, {}, {"app": "api"}) or "")


def asking(within: str | None, keys: dict[str, list[str]], *added: dict[str, Any]) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}, *added]}
    term = {"topologyKey": "zone", "labelSelector": selector, **keys}
    if within is None:
        return {"topologySpreadConstraints": [{**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
    return {"affinity": {within: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(("field", "operator"), [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")])
def test_labels_count_if_a_term_names_their_key(field: str, operator: str) -> None:
    """The API server adds the pod's own label value to the selector, and nothing for a pod without the label."""
    template = "podAntiAffinity", {field: ["track"]}
    pod = asking(*template, {"key": "track", "operator": operator, "values": ["canary"]})
    message = difference(pod, asking(*template), {"app": "web", "track": "canary"})
    assert "the label track is canary, in the template absent" in (message or "")


@pytest.mark.parametrize(
    ("field", "operator", "within"),
    [
        ("matchLabelKeys", "In", None),
        ("matchLabelKeys", "In", "podAffinity"),
        ("matchLabelKeys", "In", "podAntiAffinity"),
        ("mismatchLabelKeys", "NotIn", "podAntiAffinity"),
    ],
)
def test_selectors_are_compared_without_what_the_api_server_has_merged_into_them(
    field: str, operator: str, within: str | None
) -> None:
    for value in ("web", "other"):
        template = within, {field: ["app", "no-label-of-it"]}
        pod = asking(*template, {"key": "app", "operator": operator, "values": [value]})
        assert (difference(pod, asking(*template)) is None) is (value == "web")


OWN: dict[str, Any] = {
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "volumes": [{"name": "own", "emptyDir": {}}],
    "initContainers": [{"name": "own", "resources": {"requests": {"cpu": "2"}}}],
}


@pytest.mark.parametrize("own", [{}, OWN])
def test_fields_that_admission_adds_to_every_pod_are_ignored(own: dict[str, Any]) -> None:
    added = [
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for taint in ("not-ready", "unreachable")
    ]
    token = {"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    sidecar = {
        "name": "proxy",
        "resources": {"requests": {"cpu": "100m"}},
        "ports": [{"containerPort": 1, "hostPort": 1}],
    }
    given = {
        "tolerations": [*added, *own.get("tolerations", ())],
        "volumes": [token, *own.get("volumes", ())],
        "priority": 7,
        "priorityClassName": "usual",
        "containers": [*CONTAINERS, sidecar],
        "initContainers": [sidecar, *own.get("initContainers", ())],
    }
    assert difference(given, own) is None


def with_container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


def tolerating(key: str, effect: str = "NoSchedule", operator: str = "Exists", **fields: Any) -> dict[str, Any]:
    return {"tolerations": [{"key": key, "operator": operator, "effect": effect}], **fields}


LIMITED, ROOMY = {"limits": {"cpu": "1"}}, {"limits": {"memory": "5"}}
NULLS = dict.fromkeys(
    ("initContainers", "volumes", "tolerations", "runtimeClassName", "priorityClassName", "resources")
)
GPU = with_container(resources={"requests": {"example.org/gpu": "1", "cpu": "1"}})
KATA = {"overhead": {"cpu": "1"}, "nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata"}]}


@pytest.mark.parametrize(
    ("pod", "template", "differs"),
    [
        (with_container(resources={**LIMITED, "requests": {"cpu": "1"}}), with_container(resources=LIMITED), False),
        (with_container(resources={**LIMITED, "requests": {"cpu": "2"}}), with_container(resources=LIMITED), True),
        ({"resources": {**ROOMY, "requests": {"cpu": "1", "memory": "5"}}}, {"resources": ROOMY}, False),
        ({"resources": {"requests": {"memory": "5"}}}, {"resources": {"requests": {"memory": "4"}}}, True),
        ({"resources": {"requests": {"memory": "5"}}}, {}, True),
        (
            {"hostNetwork": True, **with_container(ports=[{"containerPort": 80, "hostPort": 80}])},
            {"hostNetwork": True, **with_container(ports=[{"containerPort": 80}])},
            False,
        ),
        ({"hostNetwork": True, **with_container()}, {"hostNetwork": True, **with_container(ports=[{}])}, False),
        (
            with_container(ports=[{"containerPort": 80, "hostPort": 80}]),
            with_container(ports=[{"containerPort": 80}]),
            True,
        ),
        ({"runtimeClassName": "kata", **KATA}, {"runtimeClassName": "kata"}, False),
        ({"runtimeClassName": "kata", **KATA}, {"runtimeClassName": "kata", "tolerations": KATA["tolerations"]}, False),
        ({"runtimeClassName": "kata", **KATA}, {"runtimeClassName": "kata", "nodeSelector": {"kata": "no"}}, True),
        ({"runtimeClassName": "kata"}, {"runtimeClassName": "kata"}, False),
        ({"runtimeClassName": "kata", **KATA}, {"runtimeClassName": "other"}, True),
        (KATA, {}, True),
        ({"priorityClassName": "high", "priority": 9}, {"priorityClassName": "high"}, False),
        ({"priorityClassName": "high", "priority": 9}, {"priorityClassName": "low", "priority": 9}, True),
        ({"initContainers": [{"name": "proxy", "resources": {"requests": {"cpu": "2"}}}]}, {}, False),
        (
            {"initContainers": [{"name": "own", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]},
            {"initContainers": [{"name": "own", "resources": {"limits": {"cpu": "2"}}}]},
            False,
        ),
        (
            {"initContainers": [{"name": "own", "resources": {"requests": {"cpu": "2"}}}]},
            {"initContainers": [{"name": "own", "resources": {"limits": {"cpu": "3"}}}]},
            True,
        ),
        (tolerating("node.kubernetes.io/memory-pressure"), {}, False),
        (tolerating("node.kubernetes.io/memory-pressure", "NoExecute"), {}, True),
        (tolerating("node.kubernetes.io/memory-pressure", operator="Equal"), {}, True),
        (tolerating("node.kubernetes.io/not-ready", "NoExecute"), {}, False),
        (tolerating("node.kubernetes.io/not-ready", "NoExecute", "Equal"), {}, True),
        (tolerating("node.kubernetes.io/unreachable"), {}, True),
        (tolerating("example.org/gpu", **GPU), GPU, False),
        (tolerating("example.org/gpu", operator="Equal", **GPU), GPU, True),
        (tolerating("example.org/gpu"), {}, True),
        (tolerating("cpu", **GPU), GPU, True),
        # What is null in the template of a custom resource is absent in the pod.
        ({}, {**NULLS, **with_container(ports=None, resources={"requests": {"cpu": "1"}, "limits": None})}, False),
        ({"hostNetwork": True}, {"hostNetwork": True, **with_container(ports=None, resources=None)}, True),
        ({"runtimeClassName": "kata", **KATA}, {"runtimeClassName": "kata", "nodeSelector": None}, False),
    ],
    ids=str,
)
def test_a_replacement_gets_from_admission_what_the_pod_has_got(
    pod: dict[str, Any], template: dict[str, Any], *, differs: bool
) -> None:
    assert (difference(pod, template) is not None) is differs


@pytest.mark.parametrize("name", ["data", "other"])
def test_the_claims_of_a_stateful_set_replace_volumes_of_their_names(name: str) -> None:
    volume = {"name": name, "emptyDir": {}}
    index = {"apps.kubernetes.io/pod-index": "3"}
    document = {"metadata": {"name": "db-3", "labels": index}, "spec": {"containers": CONTAINERS}}
    template = {"spec": {"containers": CONTAINERS, "volumes": [volume]}}
    made = admitted(template, document, (), [{"metadata": {"name": "data"}}])
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-3"}}
    assert made["spec"]["volumes"] == [claim, *([volume] if name == "other" else [])]
    assert made["metadata"]["labels"] == index
    nothing = admitted({"metadata": None, "spec": None}, document, ())
    assert nothing["spec"]["containers"] == CONTAINERS
