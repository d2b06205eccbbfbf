"""The rules of the audit. Each answers for one constraint; the first that finds something decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias

from respread.api.words import listed, number_of
from respread.cluster.pod import NodeSelector
from respread.planning.audit.cures import (
    PER_POD_LABELS,
    identity_of,
    ineffective,
    remove,
    set_field,
    unsatisfiable,
)
from respread.planning.audit.finding import AuditRule, Finding, PatchOperation
from respread.planning.audit.limit_rules import FEWEST, contradiction, limited
from respread.planning.audit.subject import Subject
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.node_table import NodeTable
from respread.spread.group import SpreadGroup, domain_map

Rule: TypeAlias = Callable[[Subject], Finding | None]

_ZONES_OF_OLD: Final[Mapping[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}


def judge(subject: Subject) -> Finding | None:
    """Return why a constraint can't work; None if no rule says so.

    A default constraint of the scheduler is only found if it keeps pods Pending, because it is made for all workloads
    together, and no change of the workload cures it.
    """
    return next((found for rule in _rules_for(subject) if (found := rule(subject)) is not None), None)


def _rules_for(subject: Subject) -> Sequence[Rule]:
    if subject.position is None:
        return _OF_DEFAULTS
    return _HARD if subject.hard else _SOFT


# Which nodes count


def _unknown_topology_key(subject: Subject) -> Finding | None:
    if subject.nodes is None or not subject.nodes.nodes:
        return None
    key = subject.key.topology_key
    if key in subject.nodes.values:
        return None
    like = _ZONES_OF_OLD.get(key) or next(iter(get_close_matches(key, subject.nodes.values, 1, 0.6)), None)
    if like is not None and like in subject.nodes.values and len(subject.nodes.values[like]) > 1:
        cure, patch = f"set topologyKey to {like}", set_field(subject, "topologyKey", like)
    else:
        cure, patch = f"label the nodes with {key}, or remove the constraint", remove(subject)
    message = f"no node has the label {key}"
    if subject.hard:
        message += ", so the scheduler finds no node for the pods that have the constraint"
        return unsatisfiable(AuditRule.UNKNOWN_TOPOLOGY_KEY, subject, message, cure, patch)
    message += ", so the scheduler scores no node by it, nor by the pods' other ScheduleAnyway constraints"
    return ineffective(AuditRule.UNKNOWN_TOPOLOGY_KEY, message, cure, patch)


def _no_eligible_node(subject: Subject) -> Finding | None:
    """Find a constraint for which no node counts, although some match the pods' affinity."""
    nodes = subject.nodes
    if nodes is None or nodes.domains(subject.key).nodes or not nodes.nodes:
        return None
    spec, required = subject.template.spec, subject.key.eligibility.required_keys
    unknown = [key for key in required if key not in nodes.values]
    if not unknown:
        if not nodes.takes(spec):
            return None
        lacking = f"none of the nodes that take its pods has {_all_of(required)}"
    else:
        lacking = f"no node has {unknown[0]}, the key of another constraint of the pods"
    cure = f"label these nodes with {_all_of(required)}, or remove the constraint"
    if unknown:
        cure = "correct the other constraint"
    message = f"no node counts for it: {lacking}"
    if subject.hard:
        return unsatisfiable(AuditRule.NO_ELIGIBLE_NODE, subject, message, cure, () if unknown else remove(subject))
    return ineffective(AuditRule.NO_ELIGIBLE_NODE, message, cure, () if unknown else remove(subject))


def _one_domain(subject: Subject) -> Finding | None:
    key, spec = subject.key, subject.template.spec
    if key.min_domains > 1 or (subject.pods is not None and subject.pods < FEWEST):
        return None
    pinned = key.eligibility.node_selector.get(key.topology_key)
    domain = pinned or _only_value(key.eligibility.node_affinity, key.topology_key)
    if subject.nodes is not None:
        there = subject.nodes.domains(key).nodes
        if len(there) != 1:
            return None
        (domain,) = there
    if domain is None:
        return None
    message = f"all nodes that count for it are in {domain}, so there is nothing to spread over"
    if pinned is not None:
        path = f"/nodeSelector/{key.topology_key.replace('~', '~0').replace('/', '~1')}"
        patch = (PatchOperation("test", path, pinned), PatchOperation("remove", path))
        return ineffective(
            AuditRule.ONE_DOMAIN,
            f"the pods' nodeSelector only allows {domain}: {message}",
            f"remove {key.topology_key} from the nodeSelector, or remove the constraint",
            patch,
        )
    if subject.nodes is not None and len(subject.nodes.values.get(key.topology_key, ())) == 1:
        return ineffective(
            AuditRule.ONE_DOMAIN, message, f"add nodes with another {key.topology_key}, or do without the constraint"
        )
    constrained = bool(spec.node_selector) or spec.node_affinity is not None
    whose = "the pods' nodeSelector or affinity" if constrained else "the pods' tolerations"
    return ineffective(
        AuditRule.ONE_DOMAIN,
        message,
        f"let {whose} allow nodes in other domains, or remove the constraint",
        remove(subject),
    )


# Which pods count


def _selector(subject: Subject) -> Finding | None:
    """Find a constraint whose pods don't count for it."""
    if subject.counts_own_pods:
        return None
    key, constraint = subject.key, subject.constraint
    keys = () if constraint is None else constraint.match_label_keys
    labels = {name: value for name, value in identity_of(subject.template.labels).items() if name not in keys}
    patch: tuple[PatchOperation, ...] = ()
    cure = "give the pods labels, and select them"
    if labels:
        patch = set_field(subject, "labelSelector", {"matchLabels": labels})
        cure = f"select the pods' own labels: {','.join(f'{name}={value}' for name, value in labels.items())}"
    if key.selector.matches_nothing or key.selector.matches_everything:
        form = "has no labelSelector" if key.selector.matches_nothing else "has an empty labelSelector"
        message = f"it {form}, and so counts no pod"
        return ineffective(AuditRule.SELECTOR_MATCHES_NOTHING, message, cure, patch)
    rule = AuditRule.SELECTOR_MISSES_OWN_PODS if subject.pods else AuditRule.SELECTOR_MATCHES_NOTHING
    whom = "counts only other pods" if subject.pods else "counts no pod"
    message = f"its labelSelector {key.selector} does not match the pods that have it, so it {whom}"
    if subject.pods is None:
        return ineffective(AuditRule.SELECTOR_MISSES_OWN_PODS, message.rpartition(", so")[0], cure, patch)
    return ineffective(rule, message, cure, patch)


def _key_per_pod(subject: Subject) -> Finding | None:
    constraint = subject.constraint
    if constraint is None:
        return None
    labels = subject.template.labels
    found = next((key for key in constraint.match_label_keys if key in PER_POD_LABELS and key in labels), None)
    if found is None:
        return None
    left = [key for key in constraint.match_label_keys if key not in PER_POD_LABELS]
    return ineffective(
        AuditRule.KEY_PER_POD,
        f"{found} in its matchLabelKeys differs between the pods, so each pod counts only itself",
        f"remove {found} from matchLabelKeys",
        set_field(subject, "matchLabelKeys", left) if left else remove(subject, "matchLabelKeys"),
    )


# How many pods it limits


def _skew_unreachable(subject: Subject) -> Finding | None:
    most = subject.key.max_skew
    if subject.pods is None or not FEWEST <= subject.pods <= most:
        return None
    return ineffective(
        AuditRule.SKEW_UNREACHABLE,
        f"it counts {subject.pods} pods, and even if one domain had all of them, the skew would not be above maxSkew "
        f"{most}",
        "lower maxSkew; 1 is as even as possible",
        set_field(subject, "maxSkew", 1),
    )


# What others do already


def _duplicate(subject: Subject) -> Finding | None:
    """Find a ScheduleAnyway constraint beside a DoNotSchedule one that leaves only domains with equally many pods."""
    key = subject.key
    soft = [each for each in subject.keys if each.when_unsatisfiable == "ScheduleAnyway"]
    if len(soft) > 1 or not subject.counts_own_pods:
        return None
    for other in subject.keys:
        if (
            other.when_unsatisfiable == "DoNotSchedule"
            and (other.topology_key, other.selector, other.eligibility)
            == (key.topology_key, key.selector, key.eligibility)
            and other.max_skew == other.min_domains == 1
        ):
            return ineffective(
                AuditRule.DUPLICATE,
                "the pods have the same constraint as DoNotSchedule with maxSkew 1, which leaves only domains with the "
                "fewest pods to choose from",
                "remove it",
                remove(subject),
            )
    return None


def _min_domains_ignored(subject: Subject) -> Finding | None:
    """Find minDomains in a ScheduleAnyway constraint, which the API server refuses."""
    if subject.key.min_domains == 1:
        return None
    return ineffective(
        AuditRule.MIN_DOMAINS_IGNORED,
        "minDomains has no effect with whenUnsatisfiable: ScheduleAnyway, and the API server refuses the pods",
        "remove minDomains, or set whenUnsatisfiable: DoNotSchedule",
        remove(subject, "minDomains"),
    )


_OF_DEFAULTS: Final[Sequence[Rule]] = (_unknown_topology_key, _no_eligible_node, limited)
_HARD: Final[Sequence[Rule]] = (
    _unknown_topology_key,
    _no_eligible_node,
    _selector,
    _key_per_pod,
    limited,
    contradiction,
    _one_domain,
    _skew_unreachable,
)
_SOFT: Final[Sequence[Rule]] = (
    _min_domains_ignored,
    _unknown_topology_key,
    _no_eligible_node,
    _selector,
    _key_per_pod,
    _one_domain,
    _duplicate,
)


def _only_value(affinity: NodeSelector | None, key: str) -> str | None:
    """Return the only value of a label that node affinity allows; None if there are several, or any."""
    if affinity is None:
        return None
    allowed: set[tuple[str, ...] | None] = set()
    for term in affinity.node_selector_terms:
        exact = [each.values for each in term.match_expressions if each.key == key and each.operator == "In"]
        allowed.add(exact[0] if exact else None)
    if len(allowed) != 1:
        return None
    (values,) = allowed
    return values[0] if values is not None and len(values) == 1 else None


def _all_of(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"all of {', '.join(keys)}"


def full_domains(subject: Subject, group: SpreadGroup, pod: PreparedPod, table: NodeTable) -> Finding | None:
    """Find a constraint that allows one more pod only in domains whose nodes take none.

    If no node anywhere takes the pod, another one is at fault, and there is no finding.

    Args:
        subject: the constraint.
        group: its pods and domains.
        pod: one more of its pods, on the view of the cluster.
        table: the nodes of that view.
    """
    limit = group.minimum + group.key.max_skew
    allowed = sorted(domain for domain in group.domains.nodes if group.count(domain) < limit)
    if pod.unknown is not None or not subject.counts_own_pods or not allowed:
        return None
    nodes = domain_map(table, group).nodes
    maybe = pod.admitted(spread=False, certainly=False)
    if any(nodes[domain] & maybe for domain in allowed):
        return None
    surely = pod.admitted(spread=False)
    if not any(there & surely for domain, there in nodes.items() if domain not in allowed):
        return None
    node = min(group.domains.nodes[allowed[0]])
    why = next((each.message for each in pod.rejections(node) if each.plugin != "PodTopologySpread"), "")
    then = "a scale-up leaves one Pending"
    if subject.waiting:
        then = f"{number_of(subject.waiting, 'pod')} of {subject.pods} can't be placed"
    message = (
        f"only {listed(allowed)} may have another pod, and no node there takes one ({node} {why}); all others have "
        f"{number_of(limit, 'pod')} or more, which is the most until then, so {then}"
    )
    cure = f"make room in {listed(allowed)}, or add nodes there; nodes in other domains don't help"
    return unsatisfiable(
        AuditRule.FULL_DOMAINS, subject, message, cure, (), "Now" if subject.waiting else "NextScaleUp"
    )
