"""What missing permissions mean for each policy, in words of the installation, told once."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import pytest

from respread.api.conditions import MissingPermission
from respread.api.decoding import decode_policy
from respread.api.policy import Policy, PolicyKind
from respread.controller.permissions import PermissionNeeds, Permissions, ResourceAttributes
from tests.eviction_moves import group
from tests.fake_requests import FakeRequests
from tests.worlds import ZONE

PATCH = ResourceAttributes("patch", "", "pods", "shop")
EVENTS = ResourceAttributes("create", "events.k8s.io", "events", "shop")
EVICT = ResourceAttributes("create", "", "pods/eviction", "blog")
STATUS = ResourceAttributes("patch", "respread.dev", "clusterrebalancepolicies/status")
BUFFERS = ResourceAttributes("create", "autoscaling.x-k8s.io", "capacitybuffers", "respread-system")
ROOM = {ResourceAttributes(verb, "apps", "deployments", "respread-system") for verb in ("create", "delete", "list")}
NAMESPACES = ("blog", "respread-system", "shop")

PREVENTS: dict[str, Any] = {"prevention": {"podDeletionCost": "Enabled"}}
DOMAIN = {"topologyKey": ZONE, "values": ["a"], "provision": "Request", "priorityClassName": "low"}
ASKS: dict[str, Any] = {"constraints": {"expectedDomains": [DOMAIN]}}


def policy(name: str = "default", namespace: str = "", **spec: object) -> Policy:
    kind: PolicyKind = "RebalancePolicy" if namespace else "ClusterRebalancePolicy"
    return decode_policy(kind, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


class Known(Permissions):
    """Permissions that a test sets."""

    def __init__(self) -> None:
        super().__init__(FakeRequests(), (), lambda: 0.0)
        self.lacking: frozenset[ResourceAttributes] = frozenset()
        self.expected: frozenset[ResourceAttributes] = frozenset()

    @property
    def missing(self) -> frozenset[ResourceAttributes]:
        return self.lacking

    def expect(self, permissions: Collection[ResourceAttributes]) -> None:
        self.expected = frozenset(permissions)


class Told:
    """Needs, and what was told of them."""

    def __init__(self, helm_release: str | None = None, own_namespace: str | None = "respread-system") -> None:
        self.known = Known()
        self.events: list[tuple[str, list[str]]] = []
        self.needs = PermissionNeeds(
            self.known, own_namespace=lambda: own_namespace, announce=self.announce, helm_release=helm_release
        )

    def announce(self, policy: Policy, missing: Collection[MissingPermission]) -> None:
        self.events.append((policy.name, [each.permission for each in missing]))

    def look(
        self, *policies: Policy, lacking: Collection[ResourceAttributes] = (), acts: bool = True
    ) -> dict[str, list[tuple[str, tuple[str, ...], str]]]:
        """Return what each policy is missing: the permission, the namespaces, and what to do."""
        self.known.lacking = frozenset(lacking)
        governed = {group("shop"): "default", group("blog"): "shop/own"}
        found = self.needs.look({each.name: each for each in policies}, governed, NAMESPACES, acts=acts)
        return {
            name: [(each.permission, each.namespaces, each.action) for each in missing]
            for name, missing in found.items()
        }


def test_the_permissions_of_policies_are_expected_where_they_govern_pods() -> None:
    told = Told()
    told.look(policy(**PREVENTS), policy("own", "shop"))
    assert told.known.expected == {PATCH}
    told.look(policy(), policy("own", "shop", **PREVENTS, **ASKS))
    assert told.known.expected == {PATCH._replace(namespace="blog"), *ROOM}
    told.look(policy(**PREVENTS), acts=False)
    assert told.known.expected == frozenset()
    nowhere = Told(own_namespace=None)
    nowhere.look(policy("own", "shop", **PREVENTS, **ASKS))
    assert nowhere.known.expected == {PATCH._replace(namespace="blog")}, "it is not known yet where room is asked for"


def test_a_policy_is_missing_only_what_it_asks_for_and_what_concerns_its_namespace() -> None:
    told = Told()
    everything = (PATCH, EVENTS, EVICT, STATUS, BUFFERS, *ROOM, PATCH._replace(namespace="gone"))
    found = told.look(policy(), policy("own", "shop", **PREVENTS), policy("room", "blog", **ASKS), lacking=everything)
    events, evict = "create events.events.k8s.io", "create pods/eviction"
    assert {name: {each[0] for each in missing} for name, missing in found.items()} == {
        "default": {events, evict, "patch clusterrebalancepolicies.respread.dev/status"},
        "shop/own": {events, "patch pods"},
        "blog/room": {evict, *(f"{verb} deployments.apps" for verb in ("create", "delete", "list"))},
    }
    (patch,) = [each for each in found["shop/own"] if each[0] == "patch pods"]
    assert patch[1] == ("shop",)


@pytest.mark.parametrize(
    ("helm_release", "permission", "words"),
    [
        ("spread", PATCH, "prevention.enabled=true in the Helm release spread, or set podDeletionCost to Disabled in"),
        ("spread", EVENTS, "upgrade the Helm release spread"),
        (None, PATCH, "add the component manifests/components/prevention to the kustomization"),
        (None, EVENTS, "apply manifests/base, whose ClusterRole grants it"),
    ],
)
def test_the_remedy_is_in_words_of_the_installation(
    helm_release: str | None, permission: ResourceAttributes, words: str
) -> None:
    ((_, _, action),) = Told(helm_release).look(policy(**PREVENTS), lacking=[permission])["default"]
    assert words in action


def test_a_change_is_told_once_and_only_by_the_replica_that_acts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = Told()
    prevents, quiet = policy(**PREVENTS), policy("own", "blog")
    for lacking in ((), [PATCH], [PATCH], [PATCH, PATCH._replace(namespace="blog")], (), ()):
        told.look(prevents, quiet, lacking=lacking)
    assert told.events == [("default", ["patch pods"]), ("default", [])]
    said = [str(record.msg) for record in caplog.records]
    assert sum("A permission is missing" in each for each in said) == 1
    assert sum("A permission is granted now" in each for each in said) == 1
    told.look(prevents, lacking=[PATCH], acts=False)
    assert len(told.events) == 2
    told.look(prevents, lacking=[PATCH])
    assert told.events[2:] == [("default", ["patch pods"])]
