"""The rules of the audit about room: constraints that leave too few places for their pods, and why a pod is Pending."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Final, NamedTuple

from respread.api.reasons import listed, number_of
from respread.planning.audit.finding import (
    AuditRule,
    Finding,
    PatchOperation,
    When,
    remove,
    set_field,
    soften,
    unsatisfiable,
)
from respread.planning.audit.subject import NOT_SELECTED, KnownNodes, Subject
from respread.scheduling.filters.pod_topology_spread import HardConstraint
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.verdict import Plugin, Rejection, Unknown
from respread.scheduling.view.node_table import NodeTable
from respread.spread.group import SpreadGroup, domain_map

FEWEST: Final = 2
"""As many pods as can be spread."""
_MOST_PODS: Final = 2000
"""Up to so many pods, contradictions between constraints are looked for."""


def limited(subject: Subject) -> Finding | None:
    """Find a constraint whose global minimum can't rise, so that the other domains have room for too few pods.

    Either there are fewer domains than minDomains, and the minimum counts as 0, or a domain that counts takes no pods,
    and the minimum can't rise above what it has. Once the workload is rolled out, such a domain has none.
    """
    key, nodes, counts = subject.key, subject.nodes, subject.counts
    if nodes is None or subject.pods is None or not subject.counts_own_pods:
        return None
    there, closed = nodes.domains(key).nodes, nodes.closed(key, subject.template.spec)
    few = nodes.too_few(key)
    open_domains = [domain for domain in there if domain not in closed]
    if not open_domains or not (few or closed):
        return None
    minimum = 0 if few else min(counts.get(domain, 0) for domain in closed)
    limit, room = minimum + key.max_skew, len(open_domains) * key.max_skew
    if subject.waiting and all(counts.get(domain, 0) >= limit for domain in open_domains):
        return _limit_found(subject, nodes, "Now", subject.waiting, limit)
    if not subject.only_own or subject.pods < room or (subject.pods == room and few):
        return None
    if subject.pods > room:
        return _limit_found(subject, nodes, "NextRollout", subject.pods - room, key.max_skew)
    return _limit_found(subject, nodes, "NextScaleUp", 1, key.max_skew)


def _limit_found(subject: Subject, nodes: KnownNodes, when: When, pending: int, limit: int) -> Finding:
    key = subject.key
    there, closed = sorted(nodes.domains(key).nodes), nodes.closed(key, subject.template.spec)
    each = f"each {'other ' if closed else ''}domain may have {number_of(limit, 'pod')}"
    then = {
        "Now": f"{number_of(pending, 'pod')} of {subject.pods} can't be placed",
        "NextRollout": f"{number_of(pending, 'pod')} of {subject.pods} can't be placed again at the next rollout",
        "NextScaleUp": f"there is no room for more than {number_of(subject.pods or 0, 'pod')}: a scale-up or rollout "
        "leaves one Pending",
    }[when]
    reachable = len(there) - len(closed)
    patch: tuple[PatchOperation, ...] = ()
    cures = []
    if nodes.too_few(key):
        rule = AuditRule.TOO_FEW_DOMAINS
        domains = "1 domain" if len(there) == 1 else f"{len(there)} domains"
        message = (
            f"minDomains is {key.min_domains} and there {'is' if len(there) == 1 else 'are'} only {domains} "
            f"({listed(there)}), so the minimum counts as 0, {each}, and {then}"
        )
        cures.append(f"lower minDomains to {reachable}, or add nodes in more domains")
    else:
        rule = AuditRule.UNAVAILABLE_DOMAINS
        message = (
            f"{listed(sorted(closed))} {'counts' if len(closed) == 1 else 'count'} but can't take the pods "
            f"({closed[min(closed)]}), so the minimum can't rise, {each}, and {then}"
        )
    if key.min_domains > reachable:
        patch = set_field(subject, "minDomains", reachable) if reachable > 1 else remove(subject, "minDomains")
    if closed:
        by_affinity = closed[min(closed)].endswith(NOT_SELECTED)
        policy = "nodeAffinityPolicy" if by_affinity else "nodeTaintsPolicy"
        patch += set_field(subject, policy, "Honor", guarded=not patch)
        other = "" if by_affinity else ", or make them take pods"
        cures.append(f"set {policy}: Honor{other}")
    return unsatisfiable(rule, subject, message, ", and ".join(cures), patch, when)


def contradiction(subject: Subject) -> Finding | None:
    """Find two constraints, such as of zones and nodes, that no placement of the pods can meet together."""
    nodes, pods = subject.nodes, subject.pods
    if nodes is None or pods is None or not FEWEST <= pods <= _MOST_PODS or not subject.only_own:
        return None
    for position, other in enumerate(subject.keys):
        comparable = other.when_unsatisfiable == "DoNotSchedule" and other.selector == subject.key.selector
        if not comparable or other == subject.key:
            continue
        if (found := _contradiction_with(subject, nodes, pods, position)) is not None:
            return found
    return None


def _contradiction_with(subject: Subject, nodes: KnownNodes, pods: int, position: int) -> Finding | None:
    own, other, spec = subject.key, subject.keys[position], subject.template.spec
    own_is_outer = len(nodes.domains(own).nodes) < len(nodes.domains(other).nodes)
    outer, inner = (own, other) if own_is_outer else (other, own)
    inside = nodes.nested(outer, inner, spec)
    if inside is None:
        return None
    around, within = (
        Level(key.max_skew, bool(nodes.closed(key, spec)) or nodes.too_few(key)) for key in (outer, inner)
    )
    if can_hold(pods, inside, around, within):
        return None
    skews = range(inner.max_skew + 1, pods + 1)
    enough = bisect_left(skews, 1, key=lambda skew: int(can_hold(pods, inside, around, within._replace(max_skew=skew))))
    if enough == len(skews):
        return None
    skew = skews[enough]
    sizes = f"{min(inside)} to {max(inside)}" if min(inside) < max(inside) else str(inside[0])
    message = (
        f"{number_of(pods, 'pod')} can't be placed so that both {outer.topology_key} (maxSkew {outer.max_skew}) and "
        f"{inner.topology_key} (maxSkew {inner.max_skew}) hold: there are {len(inside)} domains of "
        f"{outer.topology_key} with {sizes} of {inner.topology_key} each"
    )
    cure = f"raise maxSkew of {inner.topology_key} to {skew}, or set its whenUnsatisfiable: ScheduleAnyway"
    where = f"/topologySpreadConstraints/{position if own_is_outer else subject.position}"
    patch = (
        PatchOperation("test", f"{where}/topologyKey", inner.topology_key),
        PatchOperation("add", f"{where}/maxSkew", skew),
    )
    return unsatisfiable(AuditRule.CONTRADICTION, subject, message, cure, patch)


# Where one more pod may go now


def without_a_place(subject: Subject, group: SpreadGroup, pod: PreparedPod, table: NodeTable) -> Finding | None:
    """Find a constraint because of which no node takes one more pod, alone or together with the pods' others.

    If no node anywhere takes the pod, something else is at fault, and there is no finding. `pod` is one more of its
    pods, on the view of the cluster with the table of nodes.
    """
    limit = group.minimum + group.key.max_skew
    allowed = sorted(domain for domain in group.domains.nodes if group.count(domain) < limit)
    unknown = pod.unknown is not None and not pod.unknown.filters_answer
    if unknown or not subject.counts_own_pods or not allowed:
        return None
    nodes = domain_map(table, group).nodes
    maybe = pod.admitted(spread=False, certainly=False)
    has_place = any(nodes[domain] & maybe for domain in allowed)
    # Where the constraints leave no node together, the next pods may have landed otherwise: only waiting ones prove it.
    if has_place and (not subject.waiting or len(pod.hard_constraints) == 1 or pod.admitted(certainly=False)):
        return None
    surely = pod.admitted(spread=False)
    if not any(there & surely for domain, there in nodes.items() if domain not in allowed):
        return None
    if not has_place:
        return _full_domains(subject, group, pod, limit, allowed)
    others = [each for each in pod.hard_constraints if each.constraint.topology_key != group.key.topology_key]
    without_it = reduce(and_, (each.admitted() for each in others), surely)
    return _none_together(subject, allowed, others) if without_it else None


_CURES: Final[Mapping[Plugin, str]] = {
    **dict.fromkeys(
        ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"),
        "use volumes that nodes in {there} can reach, or set whenUnsatisfiable: ScheduleAnyway",
    ),
    "InterPodAffinity": "change the pods' affinity to other pods, which keeps them from {there}, or set "
    "whenUnsatisfiable: ScheduleAnyway",
    "NodePorts": "add nodes in {there}, because each takes only one pod with the port; nodes in other domains don't "
    "help",
}
"""What to do if nodes reject the pods for another reason than room."""


def _full_domains(
    subject: Subject, group: SpreadGroup, pod: PreparedPod, limit: int, allowed: Sequence[str]
) -> Finding:
    node, there = group.domains.nodes[allowed[0]][0], listed(allowed)
    kept = Rejection("NodeResourcesFit", "keeps its room for other pods")
    why = next((each for each in pod.rejections(node) if each.plugin != "PodTopologySpread"), kept)
    message = (
        f"only {there} may have another pod, and no node there takes one ({node} {why.message}); all others have "
        f"{number_of(limit, 'pod')} or more, which is the most until then, so {_then(subject)}"
    )
    cure = _CURES.get(why.plugin, "make room in {there}, or add nodes there; nodes in other domains don't help")
    patch = soften(subject) if "ScheduleAnyway" in cure else ()
    when: When = "Now" if subject.waiting else "NextScaleUp"
    return unsatisfiable(AuditRule.FULL_DOMAINS, subject, message, cure.format(there=there), patch, when)


def _none_together(subject: Subject, allowed: Sequence[str], constraints: Sequence[HardConstraint]) -> Finding:
    others, there = listed([each.constraint.topology_key for each in constraints]), listed(allowed)
    return unsatisfiable(
        AuditRule.CONTRADICTION,
        subject,
        f"it allows another pod only in {there}, and of the nodes there the pods' constraint for {others} allows none, "
        f"so {_then(subject)}",
        f"set whenUnsatisfiable: ScheduleAnyway for one of them, or add nodes in {there} that {others} allows too",
        soften(subject),
        "Now",
    )


def _then(subject: Subject) -> str:
    if not subject.waiting:
        return "a scale-up leaves one Pending"
    return f"{number_of(subject.waiting, 'pod')} of {subject.pods} can't be placed"


class Level(NamedTuple):
    """A DoNotSchedule constraint, as far as it limits how many pods each domain may have."""

    max_skew: int
    minimum_is_zero: bool
    """Whether the global minimum can't rise above 0: there are too few domains, or one of them takes no pods."""


def can_hold(pods: int, nodes: Sequence[int], outer: Level, inner: Level) -> bool:
    """Return whether so many pods can be placed, if two constraints hold whose domains are nested.

    There must be an outer minimum `z` and an inner minimum `h`, so that each outer domain with `n` inner domains has at
    least `max(z, n h)` pods and at most `min(z + outer maxSkew, n (h + inner maxSkew))`, and these bounds contain the
    number of pods. If there are none, no order of placing the pods can succeed: as long as pods are only added, minima
    don't fall, so that at the end every domain would be within the bounds.

    `nodes` has, for each outer domain such as a zone, the number of inner domains that take pods, which may be 0.
    """
    outer_minima = _minima(pods, len(nodes), outer, zero=not all(nodes))
    inner_minima = _minima(pods, sum(nodes), inner)
    for outer_minimum in outer_minima:
        for inner_minimum in inner_minima:
            least = [max(outer_minimum, each * inner_minimum) for each in nodes]
            most = [min(outer_minimum + outer.max_skew, each * (inner_minimum + inner.max_skew)) for each in nodes]
            if sum(least) <= pods <= sum(most) and all(map(int.__le__, least, most)):
                return True
    return False


def _minima(pods: int, domains: int, level: Level, *, zero: bool = False) -> Sequence[int]:
    """Return the minima with which so many domains can have so many pods: not above the mean, nor too far below."""
    if zero or level.minimum_is_zero or not domains:
        return (0,)
    least = -(-pods // domains) - level.max_skew
    return range(pods // domains, max(0, least) - 1, -1)


_WORDS: Final = {
    "NodeUnschedulable": "are cordoned",
    "TaintToleration": "have a taint that it does not tolerate",
    "NodeAffinity": "do not match its nodeSelector or affinity",
    "NodePorts": "have no free port for it",
    "NodeResourcesFit": "have too little room",
    "InterPodAffinity": "do not match its affinity to other pods",
}


class RejectedNodes(NamedTuple):
    """The nodes that reject a pod for the same reason."""

    plugin: Plugin
    """The filter that does."""
    topology_key: str | None
    """Of the topology spread constraint, if the filter is PodTopologySpread."""
    nodes: int
    why: str
    """Such as `have too little room`."""
    example: str
    """One of the nodes, and what the filter says about it."""

    def __str__(self) -> str:
        """Return the reason in words."""
        return f"{self.nodes} {self.why} ({self.example})"


class WhyPending(NamedTuple):
    """Why a pod has no node."""

    nodes: int
    """How many nodes there are."""
    rejected: tuple[RejectedNodes, ...]
    """Those that reject it, the largest number first."""
    unknown: Unknown | None
    """Why it can't be told, or is not the nodes' fault; None if it can."""

    def __str__(self) -> str:
        """Return the sentence of the Event `FailedScheduling`, with the number of nodes for each constraint."""
        if self.unknown is not None:
            gated = self.unknown.subject == "schedulingGates"
            return self.unknown.message if gated else f"it can't be told why: {self.unknown.message}"
        if fitting := self.nodes - sum(each.nodes for each in self.rejected):
            return f"{fitting} of {self.nodes} nodes can take it now"
        return f"0 of {self.nodes} nodes are available: {'; '.join(map(str, self.rejected))}"


def why_pending(pod: PreparedPod, nodes: list[str]) -> WhyPending:
    """Return how many nodes reject a pod, by the first filter that does, as in the Event `FailedScheduling`.

    kube-scheduler gives one number for all topology spread constraints. Here each has its own, and what it says of one
    of the nodes.

    `nodes` are the names of all nodes, sorted.
    """
    if pod.unknown is not None and not pod.unknown.filters_answer:
        return WhyPending(len(nodes), (), pod.unknown)
    found: dict[tuple[Plugin, str | None, str], RejectedNodes] = {}
    for name in nodes:
        if (rejection := pod.first_rejection(name)) is None:
            continue
        key, why = _reason(rejection)
        at = rejection.plugin, key, why
        first = found.get(at) or RejectedNodes(*at[:2], 0, why, f"{name}: {rejection.message}")
        found[at] = first._replace(nodes=first.nodes + 1)
    if pod.unknown is not None and sum(each.nodes for each in found.values()) < len(nodes):
        return WhyPending(len(nodes), (), pod.unknown)
    return WhyPending(len(nodes), tuple(sorted(found.values(), key=lambda each: -each.nodes)), None)


def _reason(rejection: Rejection) -> tuple[str | None, str]:
    """Return the topology key that a rejection is about, and the reason in words."""
    if rejection.plugin != "PodTopologySpread":
        return None, _WORDS.get(rejection.plugin, f"are rejected by {rejection.plugin}")
    # The message begins with the key, or it is `has no label KEY, …`.
    key, _, said = rejection.message.partition(" ")
    if key != "has":
        return key, f"would break {key}"
    key = said.removeprefix("no label ").partition(",")[0]
    return key, f"lack the label {key}"
