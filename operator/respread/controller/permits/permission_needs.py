"""What missing permissions mean for policies, and what users do about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import is_
from typing import Final, NamedTuple

from respread.api.conditions import MissingPermission
from respread.api.policy import Policy
from respread.controller.permits.permissions import Permissions, ResourceAttributes, Right
from respread.provisioning.rooms import asks_for_room
from respread.spread.group import GroupKey
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)


class _Need(NamedTuple):
    """What some rights are for."""

    what: str
    component: str = ""
    """The component of manifests/, and the value of the chart, that grants them; empty for the base."""
    otherwise: str = ""
    """How a policy does without."""

    def is_of(self, policy: Policy, namespace: str) -> bool:
        """Return whether a policy needs it in a namespace."""
        if self is _PREVENTION:
            return policy.spec.prevention.pod_deletion_cost == "Enabled"
        if self is _ROOM:
            return asks_for_room(policy)
        return policy.namespace in {"", namespace}


_PREVENTION: Final = _Need(
    "spec.prevention.podDeletionCost", "prevention", "set podDeletionCost to Disabled in the policy"
)
_ROOM: Final = _Need(
    "provision: Request of spec.constraints.expectedDomains", "room", "remove provision from the policy"
)
_EVENTS: Final = _Need("writing Events")
_OTHERS: Final = _Need("naming others who evict pods")
_RULES: Final = _Need("finding out whether a ResourceQuota or LimitRange would refuse a replacement")
_CUSTOM: Final = _Need("evicting pods of Argo Rollouts and OpenKruise CloneSets")
_OPERATOR: Final = _Need("Respread")

_OPTIONAL: Final[Mapping[Right, _Need]] = {
    ("patch", "", "pods"): _PREVENTION,
    ("create", "apps", "deployments"): _ROOM,
    ("delete", "apps", "deployments"): _ROOM,
    ("list", "apps", "deployments"): _ROOM,
    ("create", "", "podtemplates"): _ROOM,
    ("create", "autoscaling.x-k8s.io", "capacitybuffers"): _ROOM,
    ("delete", "autoscaling.x-k8s.io", "capacitybuffers"): _ROOM,
    ("list", "autoscaling.x-k8s.io", "capacitybuffers"): _ROOM,
    ("create", "events.k8s.io", "events"): _EVENTS,
    ("patch", "events.k8s.io", "events"): _EVENTS,
    ("list", "events.k8s.io", "events"): _OTHERS,
    ("list", "", "limitranges"): _RULES,
    ("list", "", "resourcequotas"): _RULES,
    ("get", "argoproj.io", "rollouts"): _CUSTOM,
    ("get", "apps.kruise.io", "clonesets"): _CUSTOM,
}
OPTIONAL: Final[Collection[Right]] = _OPTIONAL.keys()
"""The rights without which the rest of the operator works."""
_FOR_ROOM: Final = tuple(ResourceAttributes(verb, "apps", "deployments") for verb in ("create", "delete", "list"))
"""What asking for room needs in any cluster. Where CapacityBuffers can't be created, Deployments ask for room."""
_SPARE: Final = "autoscaling.x-k8s.io"
"""The API group of CapacityBuffers."""


class PermissionNeeds:
    """Has the permissions that policies need asked for, and tells users which are missing."""

    __slots__ = ("_announce", "_basis", "_helm_release", "_logged", "_own_namespace", "_permissions", "_told")

    def __init__(
        self,
        permissions: Permissions,
        *,
        own_namespace: Callable[[], str | None],
        announce: Callable[[Policy, Collection[MissingPermission]], None],
        helm_release: str | None = None,
    ) -> None:
        """Create it.

        Args:
            permissions: knows which are missing.
            own_namespace: the operator's own namespace; None while unknown.
            announce: called when a policy is missing other permissions than before.
            helm_release: the Helm release that installed the operator; None if manifests did.
        """
        self._permissions = permissions
        self._own_namespace = own_namespace
        self._announce = announce
        self._helm_release = helm_release
        self._basis: tuple[object, ...] = ()
        """The objects from which the expected permissions were found. While they are the same, so are these."""
        self._logged: frozenset[Right] = frozenset()
        self._told: Mapping[str, frozenset[str]] = {}

    def look(
        self,
        policies: Mapping[str, Policy],
        governed: Mapping[GroupKey, str],
        namespaces: Collection[str],
        *,
        acts: bool,
    ) -> Mapping[str, tuple[MissingPermission, ...]]:
        """Return what policies need and is missing, by the policies' names, after users were told what has changed.

        Args:
            policies: all policies, by name.
            governed: the name of the policy that governs each spread group.
            namespaces: all namespaces.
            acts: whether this replica acts. Others need hardly any permission, and write no Events.
        """
        self._expect(policies if acts else {}, governed)
        missing = sorted(
            each
            for each in self._permissions.missing
            if each.group != _SPARE and (not each.namespace or each.namespace in namespaces)
        )
        self._log(missing)
        found = {}
        for policy in policies.values():
            if of_policy := self._of_policy(policy, missing):
                found[policy.name] = of_policy
        told = {name: frozenset(each.permission for each in of_policy) for name, of_policy in found.items()}
        for name, policy in policies.items():
            if acts and told.get(name) != self._told.get(name):
                self._announce(policy, found.get(name, ()))
        self._told = told if acts else {}
        return found

    def _expect(self, policies: Mapping[str, Policy], governed: Mapping[GroupKey, str]) -> None:
        """Have the optional permissions asked for that policies ask for."""
        own_namespace = self._own_namespace()
        basis = policies, governed, own_namespace
        if self._basis and all(map(is_, basis, self._basis)):
            return
        self._basis = basis
        expected: set[ResourceAttributes] = set()
        preventing = set()
        for policy in policies.values():
            if policy.spec.prevention.pod_deletion_cost == "Enabled":
                preventing.add(policy.name)
            if own_namespace is not None and asks_for_room(policy):
                expected.update(each._replace(namespace=own_namespace) for each in _FOR_ROOM)
        if preventing:
            namespaces = {group.namespace for group, policy in governed.items() if policy in preventing}
            expected.update(ResourceAttributes("patch", "", "pods", each) for each in namespaces)
        self._permissions.expect(expected)

    def _of_policy(self, policy: Policy, missing: Iterable[ResourceAttributes]) -> tuple[MissingPermission, ...]:
        by_right: dict[Right, list[str]] = {}
        for each in missing:
            if _need(each.right).is_of(policy, each.namespace):
                by_right.setdefault(each.right, []).append(each.namespace)
        return tuple(
            MissingPermission(_words(right), tuple(namespaces), (need := _need(right)).what, self._action(need))
            for right, namespaces in by_right.items()
        )

    def _log(self, missing: Iterable[ResourceAttributes]) -> None:
        """Write one line for each permission that is missing now and was not before, or the other way round."""
        namespaces: dict[Right, list[str]] = {}
        for each in missing:
            namespaces.setdefault(each.right, []).append(each.namespace)
        for right in sorted(self._logged - namespaces.keys()):
            _log.info("A permission is granted now", permission=_words(right))
        for right in sorted(namespaces.keys() - self._logged):
            need = _need(right)
            _log.error(
                "A permission is missing",
                permission=_words(right),
                namespace=namespaces[right][0],
                needed_for=need.what,
                action=self._action(need),
            )
        self._logged = frozenset(namespaces)

    def _action(self, need: _Need) -> str:
        if self._helm_release is not None:
            where = f"the Helm release {self._helm_release}"
            action = f"set {need.component}.enabled=true in {where}" if need.component else f"upgrade {where}"
        else:
            where = f"manifests/components/{need.component}" if need.component else "manifests/base"
            action = f"add the component {where} to the kustomization" if need.component else f"apply {where}"
        return f"{action}, or {need.otherwise}" if need.otherwise else f"{action}, whose ClusterRole grants it"


def _need(right: Right) -> _Need:
    return _OPTIONAL.get(right, _OPERATOR)


def _words(right: Right) -> str:
    """Return a right as arguments of `kubectl auth can-i`."""
    verb, group, resource = right
    kind, _, subresource = resource.partition("/")
    named = f"{kind}.{group}" if group else kind
    return f"{verb} {named}/{subresource}" if subresource else f"{verb} {named}"
