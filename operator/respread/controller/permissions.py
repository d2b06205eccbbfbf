"""Which permissions are missing, so that forbidden requests are not repeated, and what they mean for policies.

Whether an optional permission is granted is asked by SelfSubjectAccessReviews: before the first request that needs it,
and at an interval while it is missing. So no request is forbidden, and users learn of it before the permission is
needed. Every other permission is known to be missing from the authorizer's answer to a request. Others like it wait for
a short time, and then one of them finds out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from respread.api.conditions import MissingPermission
from respread.api.policy import Policy
from respread.kube.requests import Meaning, Method, NoResponseError, Requests, Response, resource_of, status_of
from respread.kube.retry import WokenLoop
from respread.provisioning.rooms import asks_for_room
from respread.spread.group import GroupKey
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

ASK_AGAIN_SECONDS: Final = 310.0
"""How long an optional permission counts as missing by default, so that it is asked for twice in 10 minutes at most."""
TRY_AGAIN_SECONDS: Final = 30.0
"""How long requests that need another permission wait after one was refused. An API server that has just started
refuses everything for a moment."""
UNANSWERED_SECONDS: Final = 10.0
"""How long nothing is asked after a review had no answer. Requests are sent meanwhile."""
UNUSED_SECONDS: Final = 3600.0
"""After this time without a need for it, a missing permission is forgotten."""
TIMEOUT_SECONDS: Final = 5.0
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MAYBE_BEFORE_AUTHORIZATION: Final = {Meaning.UNAUTHORIZED, Meaning.THROTTLED, Meaning.UNCERTAIN}
"""Answers that the API server may give before it has looked at permissions."""
_VERBS: Final[Mapping[Method, str]] = {"DELETE": "delete", "PATCH": "patch", "POST": "create", "PUT": "update"}

Right: TypeAlias = tuple[str, str, str]
"""A verb, an API group, and a resource with its subresource."""


class ResourceAttributes(NamedTuple):
    """A verb on a resource, in one namespace."""

    verb: str
    group: str
    resource: str
    """With its subresource, such as `pods/eviction`."""
    namespace: str = ""
    """Empty: all namespaces, or a resource that has none."""

    @property
    def right(self) -> Right:
        """The same for any namespace."""
        return self.verb, self.group, self.resource


class _Review(msgspec.Struct):
    class Status(msgspec.Struct):
        allowed: bool

    status: Status


class _Missing(msgspec.Struct):
    refusal: Response
    until: float
    """Until when that is not asked again."""
    needed_at: float
    """When something last needed it."""


class Permissions:
    """Remembers which permissions are missing. It belongs to one event loop."""

    def __init__(
        self,
        requests: Requests,
        optional: Collection[Right],
        clock: Callable[[], float],
        *,
        ask_again_seconds: float = ASK_AGAIN_SECONDS,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        """Know of none yet. `notify` is called when `missing` has changed."""
        self._requests = requests
        self._optional = frozenset(optional)
        self._clock = clock
        self._ask_again_seconds = ask_again_seconds
        self._notify = notify
        self._expected: frozenset[ResourceAttributes] = frozenset()
        self._granted: set[ResourceAttributes] = set()
        self._missing: dict[ResourceAttributes, _Missing] = {}
        self._denied_everywhere: dict[Right, float] = {}
        """Until when it counts as known that a right is not granted in all namespaces."""
        self._asking = asyncio.Lock()
        self._ask_at = -inf
        """When a review may be sent, on the clock."""
        self._loop = WokenLoop(lambda: _log.exception("Asking for permissions failed; it is tried again"))

    @property
    def missing(self) -> frozenset[ResourceAttributes]:
        """The permissions that are missing and were needed lately, or are expected."""
        return frozenset(self._missing)

    def expect(self, permissions: Collection[ResourceAttributes]) -> None:
        """Ask for these optional permissions too, although no request may need them yet."""
        expected = frozenset(permissions)
        if expected != self._expected:
            self._expected = expected
            self._loop.wake()

    async def run(self) -> None:
        """Ask for permissions that are expected or missing until cancelled."""
        await self._loop.run(self._step)

    async def refusal(self, method: Method, path: str, names: Mapping[str, str]) -> Response | None:
        """Return the answer to a request whose permission is missing; None to send it. See `Requests.prepare`."""
        if (permission := permission_for(method, path, names)) is None:
            return None
        if permission.right in self._optional and self._is_to_be_asked(permission):
            await self._ask(permission)
        if (missing := self._missing.get(permission)) is None:
            return None
        now = self._clock()
        missing.needed_at = now
        if missing.until > now:
            return missing.refusal
        missing.until = now + self._interval(permission)  # This request finds out.
        return None

    def answered(self, method: Method, path: str, names: Mapping[str, str], response: Response) -> None:
        """Take over the API server's answer to a request."""
        if (permission := permission_for(method, path, names)) is None:
            return
        if response.meaning is Meaning.FORBIDDEN:
            words = f'cannot {permission.verb} resource "{permission.resource}"'
            if words in status_of(response.body).message:  # Admission refuses in other words.
                self._granted -= {permission, permission._replace(namespace="")}
                self._miss(permission, msgspec.structs.replace(response, sent=False))
        elif response.meaning not in _MAYBE_BEFORE_AUTHORIZATION:
            self._grant(permission)

    async def _step(self) -> float:
        """Ask for what is due, and return for how many seconds nothing is."""
        for permission in {*self._expected, *self._missing}:
            if permission.right in self._optional:
                await self._ask(permission)
        now = self._clock()
        unused = [
            permission
            for permission, missing in self._missing.items()
            if permission not in self._expected and missing.needed_at + UNUSED_SECONDS <= now
        ]
        for permission in unused:
            del self._missing[permission]
        if unused:
            self._notify()
        due = [
            missing.until if permission.right in self._optional else missing.needed_at + UNUSED_SECONDS
            for permission, missing in self._missing.items()
        ]
        if any(self._is_unknown(permission) for permission in self._expected):
            due.append(self._ask_at)
        return max(min(due, default=inf), self._ask_at, now + 1.0) - now

    def _is_unknown(self, permission: ResourceAttributes) -> bool:
        everywhere = permission._replace(namespace="")
        return permission not in self._missing and self._granted.isdisjoint((permission, everywhere))

    def _is_to_be_asked(self, permission: ResourceAttributes) -> bool:
        now = self._clock()
        if now < self._ask_at:
            return False
        missing = self._missing.get(permission)
        return self._is_unknown(permission) if missing is None else missing.until <= now

    async def _ask(self, permission: ResourceAttributes) -> None:
        """Ask for a permission, first in all namespaces and then in its own."""
        async with self._asking:
            if not self._is_to_be_asked(permission):
                return
            for each in dict.fromkeys((permission._replace(namespace=""), permission)):
                if each != permission and self._denied_everywhere.get(each.right, -inf) > self._clock():
                    continue
                allowed = await self._is_allowed(each)
                if allowed is None:
                    return
                if allowed:
                    self._granted.add(each)
                    self._grant(each)
                    return
                self._denied_everywhere[each.right] = self._clock() + self._ask_again_seconds
            self._miss(permission, _refusal(permission))

    async def _is_allowed(self, permission: ResourceAttributes) -> bool | None:
        """Return whether a permission is granted; None if the API server does not say."""
        resource, _, subresource = permission.resource.partition("/")
        attributes = {
            "namespace": permission.namespace,
            "verb": permission.verb,
            "group": permission.group,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            response = await self._requests.send("POST", _REVIEWS, {}, body=body, timeout_seconds=TIMEOUT_SECONDS)
            if response.succeeded:
                return msgspec.json.decode(response.body, type=_Review).status.allowed
        except (NoResponseError, msgspec.DecodeError, UnicodeDecodeError):
            self._ask_at = self._clock() + UNANSWERED_SECONDS
            return None
        lasts = response.meaning in {Meaning.FORBIDDEN, Meaning.ABSENT}
        self._ask_at = self._clock() + (self._ask_again_seconds if lasts else UNANSWERED_SECONDS)
        return None

    def _grant(self, permission: ResourceAttributes) -> None:
        """Note that a permission is granted, if it was missing. Without a namespace, it is in all namespaces."""
        ended = [
            each
            for each in self._missing
            if each == permission or (not permission.namespace and each.right == permission.right)
        ]
        for each in ended:
            del self._missing[each]
        if ended:
            self._notify()

    def _miss(self, permission: ResourceAttributes, refusal: Response) -> None:
        now, before = self._clock(), self._missing.get(permission)
        needed_at = now if before is None else before.needed_at
        self._missing[permission] = _Missing(refusal, now + self._interval(permission), needed_at)
        self._loop.wake()
        if before is None:
            self._notify()

    def _interval(self, permission: ResourceAttributes) -> float:
        return self._ask_again_seconds if permission.right in self._optional else TRY_AGAIN_SECONDS


def permission_for(method: Method, path: str, names: Mapping[str, str]) -> ResourceAttributes | None:
    """Return the permission that a request needs; None if it is not about a resource.

    `path` is a template, as for `Requests.prepare`.
    """
    root, *parts = path.strip("/").split("/")
    if root not in {"api", "apis"} or not (resource := resource_of(path)):
        return None
    verb = _VERBS.get(method) or ("get" if "{name}" in parts else "list")
    return ResourceAttributes(verb, parts[0] if root == "apis" else "", resource, names.get("namespace", ""))


def _refusal(permission: ResourceAttributes) -> Response:
    where = f'in the namespace "{permission.namespace}"' if permission.namespace else "at the cluster scope"
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f'not allowed to {permission.verb} resource "{permission.resource}" in API group '
        f'"{permission.group}" {where}',
        "reason": "Forbidden",
        "code": HTTPStatus.FORBIDDEN,
    }
    return Response(status_code=HTTPStatus.FORBIDDEN, body=msgspec.json.encode(status), sent=False)


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

    def __init__(
        self,
        permissions: Permissions,
        *,
        own_namespace: Callable[[], str | None],
        announce: Callable[[Policy, Collection[MissingPermission]], None],
        helm_release: str | None = None,
    ) -> None:
        """Create it. `announce` is called when a policy is missing other permissions than before."""
        self._permissions = permissions
        self._own_namespace = own_namespace
        self._announce = announce
        self._helm_release = helm_release
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

        `governed` has the policy that governs each group. Replicas that do not act need hardly any permission, and
        write no Events.
        """
        self._expect(policies if acts else {}, governed)
        missing = sorted(
            each
            for each in self._permissions.missing
            if each.group != _SPARE and (not each.namespace or each.namespace in namespaces)
        )
        self._log(missing)
        found = {name: each for name, policy in policies.items() if (each := self._of_policy(policy, missing))}
        told = {name: frozenset(each.permission for each in of_policy) for name, of_policy in found.items()}
        for name, policy in policies.items():
            if acts and told.get(name) != self._told.get(name):
                self._announce(policy, found.get(name, ()))
        self._told = told if acts else {}
        return found

    def _expect(self, policies: Mapping[str, Policy], governed: Mapping[GroupKey, str]) -> None:
        """Have the optional permissions asked for that policies ask for."""
        own_namespace = self._own_namespace()
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
