"""Compares Respread's filters, counts and scores for a case with the scheduler's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from respread.cluster.decode.decoder import Decoder
from respread.cluster.objects import DecodeError, Workload
from respread.cluster.pod import Pod
from respread.cluster.quantity import NANO_PER_UNIT, QuantityError, parse_nano, round_away_from_zero
from respread.cluster.state import ClusterState
from respread.scheduling.configuration import (
    DEFAULT_SCHEDULER,
    Profile,
    SchedulerConfiguration,
    is_known,
    selecting_owner,
)
from respread.scheduling.predictor import Predictor
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.node_table import node_set
from tests.conformance.cases import Case, ExpectedHard, ExpectedSoft, QuantityRow
from tests.spread_profiles import spread_profile

WEIGHT_TOLERANCE = 1e-9


class Difference(NamedTuple):
    """One difference from the scheduler."""

    case: str
    node: str
    """Empty if it does not concern a node."""
    what: str
    """A plugin, a count or a score."""
    expected: str
    got: str

    def __str__(self) -> str:
        where = f"{self.case}, node {self.node}" if self.node else self.case
        return f"{where}: {self.what}: expected {self.expected}, got {self.got}"


class Judgement(NamedTuple):
    """The result of a case."""

    verdicts: int
    """The number of judged nodes."""
    wrong_verdicts: int
    differences: tuple[Difference, ...]


def judge(case: Case, *, keeps_namespace_selectors: bool = True) -> Judgement:
    """Judge one case.

    Args:
        case: a case of any family.
        keeps_namespace_selectors: whether the scheduler that recorded the case has the bug of 1.36.3.
    """
    try:
        view, prepared = _prepared(case, keeps_namespace_selectors=keeps_namespace_selectors)
    except DecodeError as error:
        refused = Difference(case.id, "", "decoding", "objects that the API server had accepted", str(error))
        return Judgement(len(case.expected.nodes), len(case.expected.nodes), (refused,))
    verdicts = list(_verdict_differences(case, prepared))
    others = [
        *_feasible_differences(case, prepared),
        *_hard_differences(case, prepared),
        *_soft_differences(case, view, prepared),
    ]
    return Judgement(len(case.expected.nodes), len({each.node for each in verdicts}), (*verdicts, *others))


def _prepared(case: Case, *, keeps_namespace_selectors: bool) -> tuple[ClusterView, PreparedPod]:
    decoder, state = Decoder(), ClusterState()
    for resource, objects in case.objects():
        state.replace(resource, [decoder.decode_object(resource, bytes(each)) for each in objects or ()])
    pod = decoder.decode_object("pods", bytes(case.pod))
    assert isinstance(pod, Pod)
    configuration = SchedulerConfiguration(
        profiles=SchedulerConfiguration().profiles.set(DEFAULT_SCHEDULER, _profile(case.config)),
        keeps_namespace_selectors=keeps_namespace_selectors,
    )
    for owner in filter(None, map(selecting_owner, (pod, *state.snapshot.pods.values()))):
        if not is_known(owner, state.snapshot):  # it did not exist
            nothing = Workload(namespace=owner.key.namespace, name=owner.key.name)
            state.apply(owner.resource, [(owner.key, nothing)])
    view = ClusterView(state.snapshot)
    return view, Predictor(view, configuration).prepare(pod)


def _profile(config: dict[str, Any]) -> Profile:
    fields = ("defaultingType", "defaultConstraints")
    return spread_profile({field: config[field] for field in fields if field in config})


def _verdict_differences(case: Case, prepared: PreparedPod) -> Iterator[Difference]:
    for name, expected in case.expected.nodes.items():
        rejections = {each.plugin: each for each in prepared.rejections(name)}
        got: list[str] = [*rejections]
        rejecting = expected.rejected_by or []
        for plugin in [plugin for plugin in rejecting if plugin not in rejections]:
            reasons = "; ".join((expected.reasons or {}).get(plugin, ()))
            yield Difference(case.id, name, plugin, f"a rejection ({reasons})", "none")
        for plugin, rejection in rejections.items():
            if plugin not in rejecting:
                yield Difference(case.id, name, plugin, "no rejection", f"one ({rejection.message})")
        if sorted(got) == sorted(rejecting) and got != rejecting:
            yield Difference(case.id, name, "order", str(rejecting), str(got))
        first = prepared.first_rejection(name)
        if (None if first is None else first.plugin) != next(iter(got), None):
            yield Difference(case.id, name, "first rejection", next(iter(got), "none"), str(first))


def _feasible_differences(case: Case, prepared: PreparedPod) -> Iterator[Difference]:
    """Compare the answer for all nodes at once.

    If a plugin fails on a node, the scheduler ends the scheduling of the pod. Then the answer may be empty too.
    """
    expected = set(case.expected.feasible_nodes or ())
    got = set(prepared.names(prepared.admitted()))
    if case.expected.errors and not got:
        return
    for name in sorted(expected ^ got):
        yield Difference(case.id, name, "feasible", "yes" if name in expected else "no", "yes" if name in got else "no")


def _hard_differences(case: Case, prepared: PreparedPod) -> Iterator[Difference]:
    got = [
        ExpectedHard(
            topology_key=each.constraint.topology_key,
            max_skew=each.constraint.max_skew,
            min_domains=each.constraint.min_domains,
            node_affinity_policy=each.constraint.node_affinity_policy,
            node_taints_policy=each.constraint.node_taints_policy,
            selector=str(each.constraint.selector),
            self_match=each.constraint.self_match,
            counts=each.domains.all_counts(),
            min_match_num=each.minimum,
        )
        for each in prepared.hard_constraints
    ]
    expected = case.expected.topology_spread.hard or []
    if len(got) != len(expected):
        yield Difference(case.id, "", "hard constraints", str(len(expected)), str(len(got)))
        return
    for position, (wanted, had) in enumerate(zip(expected, got, strict=True)):
        yield from _field_differences(case, f"hard[{position}]", wanted, had)


def _soft_differences(case: Case, view: ClusterView, prepared: PreparedPod) -> Iterator[Difference]:
    expected = case.expected.topology_spread
    feasible = node_set([slot for name, slot in view.table.slot_of.items() if not prepared.rejections(name)])
    scores = prepared.scores(feasible)
    soft = () if scores is None else scores.constraints
    wanted_soft = expected.soft or []
    if len(soft) != len(wanted_soft):
        yield Difference(case.id, "", "soft constraints", str(len(wanted_soft)), str(len(soft)))
        return
    for position, (wanted, had) in enumerate(zip(wanted_soft, soft, strict=True)):
        got = ExpectedSoft(
            topology_key=had.constraint.topology_key,
            max_skew=had.constraint.max_skew,
            node_affinity_policy=had.constraint.node_affinity_policy,
            node_taints_policy=had.constraint.node_taints_policy,
            selector=str(had.constraint.selector),
            weight=wanted.weight if math.isclose(wanted.weight, had.weight, abs_tol=WEIGHT_TOLERANCE) else had.weight,
            counts=dict(had.counts),
        )
        yield from _field_differences(case, f"soft[{position}]", wanted, got)
    if scores is None:
        return
    ignored = prepared.names(scores.ignored)
    if sorted(ignored) != sorted(expected.ignored_nodes or ()):
        yield Difference(case.id, "", "ignored nodes", str(expected.ignored_nodes), str(ignored))
    raw, normalized = dict.fromkeys(ignored, 0), dict.fromkeys(ignored, 0)
    for slot, raw_score, points in zip(scores.slots, scores.raw, scores.normalized, strict=True):
        raw[view.table.names[slot]], normalized[view.table.names[slot]] = raw_score, points
    wanted_scores = expected.scores or {}
    for name, score in wanted_scores.items():
        if raw.get(name) != score.raw:
            yield Difference(case.id, name, "raw score", str(score.raw), str(raw.get(name)))
        if normalized.get(name) != score.normalized:
            yield Difference(case.id, name, "normalized score", str(score.normalized), str(normalized.get(name)))
    for name in sorted(raw.keys() - wanted_scores.keys()):
        yield Difference(case.id, name, "raw score", "none", str(raw[name]))


def _field_differences(case: Case, where: str, expected: msgspec.Struct, got: msgspec.Struct) -> Iterator[Difference]:
    for field in expected.__struct_fields__:
        wanted, had = getattr(expected, field), getattr(got, field)
        if field == "selector":
            wanted, had = _requirements(wanted), _requirements(had)
        elif field == "counts":
            wanted, had = wanted or {}, had or {}
        if wanted != had:
            yield Difference(case.id, "", f"{where}.{field}", str(wanted), str(had))


def _requirements(selector: str) -> list[str]:
    """Return a selector's requirements sorted, without the duplicates that the scheduler keeps, `a in (b)` as `a=b`."""
    requirements = set()
    for requirement in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        chosen = re.fullmatch(r"(\S+) (in|notin) \(([^)]*)\)", requirement)
        if chosen is None:
            requirements.add(requirement)
            continue
        values = sorted(set(chosen[3].split(",")))
        single = chosen[2] == "in" and len(values) == 1
        requirements.add(f"{chosen[1]}={values[0]}" if single else f"{chosen[1]} {chosen[2]} ({','.join(values)})")
    return sorted(requirements)


def judge_quantity(row: QuantityRow) -> Judgement:
    """Judge how one quantity is parsed."""
    try:
        nano = parse_nano(row.quantity)
    except QuantityError as error:
        if row.error is not None:
            return Judgement(1, 0, ())
        return Judgement(1, 1, (Difference(repr(row.quantity), "", "reading", "a quantity", str(error)),))
    if row.error is not None:
        return Judgement(1, 1, (Difference(repr(row.quantity), "", "reading", row.error, str(nano)),))
    value, milli = (round_away_from_zero(nano, unit) for unit in (NANO_PER_UNIT, 1_000_000))
    checks = (
        ("isZero", row.is_zero, nano == 0),
        ("value", row.value, None if row.value is None else value),
        ("milliValue", row.milli_value, None if row.milli_value is None else milli),
    )
    differences = tuple(
        Difference(repr(row.quantity), "", name, str(wanted), str(had)) for name, wanted, had in checks if wanted != had
    )
    return Judgement(1, bool(differences), differences)
