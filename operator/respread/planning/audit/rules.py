"""The rules of the audit. Each answers for one constraint; the first that finds something decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias

from respread.api.reasons import number_of
from respread.cluster.pod import NodeSelector, PodAffinityTerm
from respread.cluster.selectors import compile_selector
from respread.planning.audit.finding import (
    PER_POD_LABELS,
    AuditRule,
    Finding,
    PatchOperation,
    identity_of,
    ineffective,
    remove,
    set_field,
    unsatisfiable,
)
from respread.planning.audit.limit_rules import FEWEST, contradiction, limited
from respread.planning.audit.subject import Subject
from respread.scheduling.filters.topology_spread_score import HOSTNAME

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
    rules = _OF_DEFAULTS if subject.position is None else _HARD if subject.hard else _SOFT
    return next((found for rule in rules if (found := rule(subject)) is not None), None)


# Which nodes count


def _unknown_topology_key(subject: Subject) -> Finding | None:
    if subject.nodes is None or not subject.nodes.nodes:
        return None
    key = subject.key.topology_key
    if key in subject.nodes.values:
        return None
    like = _ZONES_OF_OLD.get(key) or next(iter(get_close_matches(key, subject.nodes.values, 1, 0.6)), "")
    if len(subject.nodes.values.get(like, ())) > 1:
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
        lacking, patch = f"none of the nodes that take its pods has {_all_of(required)}", remove(subject)
        cure = f"label these nodes with {_all_of(required)}, or remove the constraint"
    else:
        lacking, patch = f"no node has {unknown[0]}, the key of another constraint of the pods", ()
        cure = "correct the other constraint"
    message = f"no node counts for it: {lacking}"
    if subject.hard:
        return unsatisfiable(AuditRule.NO_ELIGIBLE_NODE, subject, message, cure, patch)
    return ineffective(AuditRule.NO_ELIGIBLE_NODE, message, cure, patch)


def _one_domain(subject: Subject) -> Finding | None:
    key, spec = subject.key, subject.template.spec
    if key.min_domains > 1 or (subject.pods is not None and subject.pods < FEWEST):
        return None
    pinned = key.eligibility.node_selector.get(key.topology_key)
    domain = pinned or only_value(key.eligibility.node_affinity, key.topology_key)
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
    lacking = {} if subject.nodes is None else subject.nodes.lacking(key.eligibility.required_keys, spec)
    return _unlabeled(subject, message, lacking) if lacking else _not_spread(subject, message)


def _not_spread(subject: Subject, message: str) -> Finding:
    """Return that only one domain counts because the pods exclude the others, or there are none."""
    key, spec = subject.key, subject.template.spec
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


def _unlabeled(subject: Subject, message: str, lacking: Mapping[str, int]) -> Finding:
    """Return that only one domain counts because other nodes that take the pods lack a label."""
    key = subject.key.topology_key
    own = key in lacking
    lacked = key if own else min(lacking)
    which = "it" if own else f"the pods' constraint for {lacked}"
    number = lacking[lacked]
    message += f"; {number} more {'node takes' if number == 1 else 'nodes take'} the pods, without the label {lacked}"
    cure = f"label these nodes with {lacked}, or remove {which}"
    return ineffective(AuditRule.ONE_DOMAIN, message, cure, remove(subject) if own else ())


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
    own = ",".join(str(each) for each in key.selector.requirements if each.key not in keys) or key.selector
    message = f"its labelSelector {own} does not match the pods that have it, so it {whom}"
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
        f"{most}: only with more pods does it have an effect",
        "lower maxSkew; 1 is as even as possible",
        set_field(subject, "maxSkew", 1),
    )


# What others do already


def _duplicate(subject: Subject) -> Finding | None:
    """Find a ScheduleAnyway constraint beside a DoNotSchedule one that leaves only domains with equally many pods."""
    key = subject.key
    soft = [each for each in subject.keys if each.when_unsatisfiable == "ScheduleAnyway"]
    if len(soft) > 1:
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


def _beside_anti_affinity(subject: Subject) -> Finding | None:
    """Find a constraint of pods that anti-affinity keeps apart in the same domains: no domain ever has two of them."""
    key, spec, nodes = subject.key, subject.template.spec, subject.nodes
    at = next((at for at, term in enumerate(spec.pod_anti_affinity) if _is_about(term, subject)), None)
    alone = subject.hard or sum(each.when_unsatisfiable == "ScheduleAnyway" for each in subject.keys) == 1
    if at is None or not alone or (nodes is not None and nodes.lacking((key.topology_key,), spec)):
        return None
    message = f"the pods' anti-affinity allows no two of them in the same {key.topology_key}, so it has nothing to do"
    if nodes is not None and subject.pods is not None and subject.pods > len(nodes.domains(key).nodes):
        path = f"/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/{at}"
        test = PatchOperation("test", f"{path}/topologyKey", key.topology_key)
        return ineffective(
            AuditRule.DUPLICATE,
            f"{message}; there are too few domains for {subject.pods} pods",
            "remove the anti-affinity, which keeps pods Pending, and delete the old pods, which keep new ones away",
            (test, PatchOperation("remove", path)),
        )
    return ineffective(AuditRule.DUPLICATE, message, "remove it, or the anti-affinity", remove(subject))


def _against_affinity(subject: Subject) -> Finding | None:
    """Find a constraint of pods that affinity to each other keeps in one domain, so that the others stay empty."""
    key, pods, nodes = subject.key, subject.pods, subject.nodes
    together = any(_is_about(term, subject, HOSTNAME) for term in subject.template.spec.pod_affinity)
    if not together or pods is None or pods <= key.max_skew or not subject.only_own:
        return None
    if len(subject.counts) > 1 or (nodes is not None and len(nodes.domains(key).nodes) <= 1):
        return None
    left = pods - key.max_skew
    return unsatisfiable(
        AuditRule.CONTRADICTION,
        subject,
        f"the pods' affinity keeps all of them in the same {key.topology_key}, and the others stay empty, so "
        f"{number_of(left, 'pod')} of {pods} can't be placed",
        "remove it, or the affinity",
        remove(subject),
    )


def _is_about(term: PodAffinityTerm, subject: Subject, *finer: str) -> bool:
    """Return whether a term of pod affinity is about the pods that a constraint counts, and its domains or finer ones.

    `matchLabelKeys` of a term are already in its selector if the API server has stored the pod; in a manifest, a term
    that has some selects fewer pods.
    """
    constraint = subject.constraint
    same_keys = constraint is not None and set(term.match_label_keys) <= set(constraint.match_label_keys)
    return (
        term.topology_key in {subject.key.topology_key, *finer}
        and same_keys
        and not term.mismatch_label_keys
        and not term.namespaces
        and term.namespace_selector is None
        and compile_selector(term.label_selector) == subject.key.selector
    )


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
    _beside_anti_affinity,
    limited,
    contradiction,
    _one_domain,
    _against_affinity,
    _skew_unreachable,
)
_SOFT: Final[Sequence[Rule]] = (
    _min_domains_ignored,
    _unknown_topology_key,
    _no_eligible_node,
    _selector,
    _key_per_pod,
    _one_domain,
    _beside_anti_affinity,
    _duplicate,
)


def only_value(affinity: NodeSelector | None, key: str) -> str | None:
    """Return the only value of a node label that node affinity allows; None if there are several, or any."""
    allowed: set[str] = set()
    for term in () if affinity is None else affinity.node_selector_terms:
        values = [set(each.values) for each in term.match_expressions if each.key == key and each.operator == "In"]
        if not values:
            return None
        allowed |= set.intersection(*values)
    return allowed.pop() if len(allowed) == 1 else None


def _all_of(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"all of {', '.join(keys)}"
