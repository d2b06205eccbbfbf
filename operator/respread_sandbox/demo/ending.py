"""How the demo ends, and whether that is as expected: by the pods at one moment, and by the API server's audit log.

None of it is the operator's: what checks should not be what is checked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import msgspec

from respread.api.reasons import listed, number_of
from respread.cluster.meta import POD_DELETION_COST
from respread_sandbox import SandboxApi
from respread_sandbox.demo.world import HOSTNAME, MAX_SKEW, SIDES, ZONE, Side
from respread_sandbox.pod_watch import PodWatch, WatchedPod


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one side's namespace at one moment."""

    per_zone: Mapping[str, Mapping[str, int]]
    """Deployment, zone, and number of pods that are not terminating, for every Deployment and every zone."""
    per_host: Mapping[str, Mapping[str, int]]
    pods: int
    """The pods that are not terminating."""
    ready: int
    pending: int
    """The pods without a node."""
    ranked: int
    """The pods with a pod deletion cost."""
    terminating: int
    evicted: int
    """Pods evicted through the Eviction API since the count began."""
    otherwise_deleted: int
    """Pods deleted in any other way since then."""

    @property
    def violated_zones(self) -> tuple[str, ...]:
        """The Deployments whose zone constraint is violated."""
        return violated(self.per_zone)

    @property
    def violated_hosts(self) -> tuple[str, ...]:
        """The Deployments whose hostname constraint is violated."""
        return violated(self.per_host)

    @property
    def worst_skew(self) -> int:
        """The largest skew over zones."""
        return max((skew(counts) for counts in self.per_zone.values()), default=0)

    @property
    def fewest_evictions(self) -> int:
        """The least number of evictions that make all zone constraints hold."""
        return sum(fewest_evictions(list(counts.values())) for counts in self.per_zone.values())

    def settled(self, pods: int) -> bool:
        """Return whether there are exactly this many pods, all Ready, and none is terminating."""
        return self.pods == self.ready == pods and not self.terminating


class Pair(NamedTuple):
    """Both sides at one moment."""

    without: Picture
    prevented: Picture


def violated(counts: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return the Deployments with more than the allowed skew."""
    return tuple(name for name, domains in counts.items() if skew(domains) > MAX_SKEW)


def skew(counts: Mapping[str, int]) -> int:
    """Return the most pods of any domain minus the fewest."""
    return max(counts.values(), default=0) - min(counts.values(), default=0)


def fewest_evictions(counts: Sequence[int], max_skew: int = MAX_SKEW) -> int:
    """Return the fewest pods to move until no domain has more than maxSkew pods more than another.

    In the end every domain has between `low` and `low + max_skew` pods, for some `low`. Whatever is above that has to
    move out and whatever is missing has to move in, and a move does one of each: the larger sum is what it takes. It is
    enough too: moves from the domains above, then from the fullest, to those below, then to the emptiest.
    """
    return min(
        max(sum(max(0, count - low - max_skew) for count in counts), sum(max(0, low - count) for count in counts))
        for low in range(max(counts, default=0) + 1)
        if low * len(counts) <= sum(counts) <= (low + max_skew) * len(counts)
    )


class PodObserver:
    """Knows every pod of one namespace, and how each deleted one was deleted."""

    def __init__(self, api: SandboxApi, namespace: str, deployments: Sequence[str]) -> None:
        """Start watching the pods of the Deployments that there will be."""
        self._deployments = deployments
        nodes = api.get("/api/v1/nodes")["items"]
        labels: dict[str, dict[str, str]] = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
        self._zone_of, self._host_of = ({name: labels[name][key] for name in labels} for key in (ZONE, HOSTNAME))
        self._count_from = 0.0
        self._watch = PodWatch(api, namespace=namespace)

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def begin_count(self) -> None:
        """Count evictions and other deletions from now on."""
        self._count_from = time.monotonic()

    def picture(self) -> Picture:
        """Return the current picture.

        Raises:
            SandboxError: the watch ended, so that nobody can tell.
        """
        lives = self._watch.lives()
        pods = [life.pod for life in lives if not life.gone]
        counted = [life for life in lives if life.deleted_at is not None and life.deleted_at >= self._count_from]
        evicted = sum(life.evicted_at is not None for life in counted)
        staying = [pod for pod in pods if not pod.terminating]
        return Picture(
            per_zone=self._per_domain(staying, self._zone_of),
            per_host=self._per_domain(staying, self._host_of),
            pods=len(staying),
            ready=sum(pod.ready for pod in staying),
            pending=sum(not pod.spec.node_name for pod in staying),
            ranked=sum(POD_DELETION_COST in pod.metadata.annotations for pod in staying),
            terminating=len(pods) - len(staying),
            evicted=evicted,
            otherwise_deleted=len(counted) - evicted,
        )

    def _per_domain(self, pods: Sequence[WatchedPod], domain_of: Mapping[str, str]) -> dict[str, dict[str, int]]:
        counts = Counter(
            (pod.metadata.labels.get("app", ""), domain_of[pod.spec.node_name]) for pod in pods if pod.spec.node_name
        )
        domains = sorted(set(domain_of.values()))
        return {name: {domain: counts[name, domain] for domain in domains} for name in self._deployments}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the demo."""

    before: Pair
    """After the scale-down, before any eviction."""
    after: Pair
    restored_seconds: float | None
    """From the moment the operator was allowed to evict until every constraint held; None if some don't."""
    operator_exit_code: int
    requests: OperatorRequests

    @property
    def missing(self) -> list[str]:
        """What is not as expected, each as a sentence without its end; nothing if all is."""
        found = [
            f"{sentence} in {side.namespace}"
            for side, before, after in zip(SIDES, self.before, self.after, strict=True)
            for sentence in _missing(side, before, after)
        ]
        evicted, requests = sum(picture.evicted for picture in self.after), self.requests
        if evicted != requests.evictions:
            found.append(f"the API server carried out {number_of(requests.evictions, 'eviction')} for the operator")
        if requests.refused:
            found.append(f"the operator's rights do not cover {listed(requests.refused)}")
        if self.operator_exit_code:
            found.append(f"the operator ended with exit code {self.operator_exit_code}")
        return found


def _missing(side: Side, before: Picture, after: Picture) -> Iterator[str]:
    fewest, not_ready = before.fewest_evictions, after.pods - after.ready
    if side.prevents and fewest:
        yield f"{number_of(fewest, 'eviction')} needed after the scale-down, and there should be none,"
    if after.violated_zones:
        yield f"the zone constraint of {listed(after.violated_zones)} does not hold"
    if after.violated_hosts:
        yield f"the hostname constraint of {listed(after.violated_hosts)} does not hold"
    if after.pending:
        yield f"{_are(after.pending, 'pod')} Pending"
    if not_ready:
        yield f"{_are(not_ready, 'pod')} not Ready"
    if after.terminating:
        yield f"{_are(after.terminating, 'pod')} still being deleted"
    if after.evicted != fewest:
        yield f"{number_of(after.evicted, 'eviction')}, where {fewest} would have done,"
    if after.otherwise_deleted:
        yield f"{_are(after.otherwise_deleted, 'pod')} gone otherwise than by an eviction"


def _are(number: int, thing: str) -> str:
    return f"{number_of(number, thing)} {'is' if number == 1 else 'are'}"


class OperatorRequests(msgspec.Struct, frozen=True):
    """The operator's requests that the demo reports."""

    evictions: int
    """The number of evictions that the API server carried out."""
    patches: int
    """The number of patches of pods that the API server carried out."""
    refused: tuple[str, ...]
    """The requests that were forbidden, each once, as verb and path."""


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Answer(msgspec.Struct):
    code: int = 0


class _Entry(msgspec.Struct, rename="camel"):
    user: _User = msgspec.field(default_factory=_User)
    verb: str = ""
    path: str = msgspec.field(default="", name="requestURI")
    object_ref: _Object | None = None
    response_status: _Answer | None = None


def requests_of(service_account: str, audit_log: Path) -> OperatorRequests:
    """Read the audit log.

    The ServiceAccount is its namespace and name, with a colon between. The file has a line of JSON for each request.
    """
    user = f"system:serviceaccount:{service_account}"
    evictions, patches, refused = 0, 0, dict[str, None]()
    with audit_log.open("rb") as lines:
        for line in lines:
            if user.encode() not in line:
                continue
            entry = msgspec.json.decode(line, type=_Entry)
            if entry.user.username != user or entry.response_status is None:
                continue
            code, about = entry.response_status.code, entry.object_ref or _Object()
            if code == HTTPStatus.CREATED and about.subresource == "eviction":
                evictions += 1
            elif code == HTTPStatus.OK and (entry.verb, about.resource, about.subresource) == ("patch", "pods", ""):
                patches += 1
            elif code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                refused[f"{entry.verb} {entry.path.partition('?')[0]}"] = None
    return OperatorRequests(evictions, patches, tuple(refused))
