"""Converts a DeschedulerPolicy to policies, with remarks about everything that is in none of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from respread.api.decoding import decode_manifest
from respread.api.fields import LabelSelector
from respread.api.policy import API_VERSION, NAMESPACE_NAME_LABEL, PolicyKind
from respread.api.structures import shown, write_value
from respread_cli.migrate.descheduler import GROUP, SPREAD, DefaultEvictorArgs, DeschedulerPolicy, SpreadArgs
from respread_cli.migrate.evictor import lines_of_evictor
from respread_cli.migrate.inputs import FoundPolicy
from respread_cli.migrate.profiles import ProfileParts, read_profile, read_v1alpha1
from respread_cli.migrate.reading import Line, Reading, Remark, Setting, Sourced, SourcePlace
from respread_cli.migrate.runs import pace_of

_MOST_IN_FLIGHT: Final = 10_000
_MOST_PER_HOUR: Final = 1_000_000
_LONGEST_GRACE_SECONDS: Final = 86_400
_FIELDS: Final = {
    "max_no_of_pods_to_evict_total": "limits.inFlight",
    "max_no_of_pods_to_evict_per_namespace": "limits.inFlightPerNamespace",
    "max_no_of_pods_to_evict_per_node": "limits.inFlightPerNode",
}


def _lines_of_limits(policy: Sourced[DeschedulerPolicy], runs_per_hour: Fraction | None) -> Iterator[Line]:
    args, places = policy
    for source, field in _FIELDS.items():
        count: int | None = getattr(args, source)
        if count is None:
            continue
        if count == 0:
            why = "With 0 descheduler evicts nothing. A policy of Respread does so as long as its mode is DryRun."
            yield Remark((places[source],), why, caution=True)
            continue
        why = "descheduler counts the evictions of a run; this counts those whose replacement is not Ready yet."
        yield Setting(field, min(count, _MOST_IN_FLIGHT), why, (places[source],))
    total = args.max_no_of_pods_to_evict_total
    if total:
        place = places["max_no_of_pods_to_evict_total"]
        if runs_per_hour is None:
            yield Remark((place,), "How often descheduler runs is not known from this, so limits.perHour is left out.")
        else:
            per_hour = total * runs_per_hour
            why = "As many as its runs of an hour may evict" + (", rounded up." if per_hour.denominator > 1 else ".")
            yield Setting("limits.perHour", min(ceil(per_hour), _MOST_PER_HOUR), why, (place,))
    if (grace := args.grace_period_seconds) is not None:
        place = places["grace_period_seconds"]
        if grace == 0:
            yield Remark(
                (place,),
                "0 takes a pod off the API server before it has stopped, which Respread refuses: two pods of one "
                "StatefulSet identity could run at once. Pods get the time that they ask for.",
            )
        else:
            why = "" if grace <= _LONGEST_GRACE_SECONDS else f"{grace} there; Respread takes a day at most."
            yield Setting("eviction.gracePeriodSeconds", min(grace, _LONGEST_GRACE_SECONDS), why, (place,))


def _lines_of_spread(spread: Sourced[SpreadArgs]) -> Iterator[Line]:
    args, places = spread
    kinds = list(dict.fromkeys(args.constraints or ("DoNotSchedule",)))
    if args.include_soft_constraints and "ScheduleAnyway" not in kinds:
        kinds.append("ScheduleAnyway")
    given = tuple(places[field] for field in ("constraints", "include_soft_constraints") if field in places)
    if given:
        yield Setting("constraints.whenUnsatisfiable", kinds, "", given)
    if args.topology_balance_node_fit is not None:
        yield Remark(
            (places["topology_balance_node_fit"],),
            "Respread only evicts where it can prove that a replacement fits into a better domain"
            + ("." if args.topology_balance_node_fit else "; that can't be turned off."),
        )


_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _selection_of(
    evictor: Sourced[DefaultEvictorArgs], spread: Sourced[SpreadArgs], reading: Reading
) -> tuple[str, tuple[SourcePlace, ...], tuple[Setting, ...]]:
    """Return the namespace of the policy that selects the pods of a profile, where it is named, and its settings.

    A single included namespace gets a RebalancePolicy of its own. For everything else, a ClusterRebalancePolicy selects
    namespaces by the label with their name.
    """
    pods = tuple(_pods(evictor, spread))
    given = spread.args.namespaces
    at = spread.places.get("namespaces")
    included = tuple(dict.fromkeys(given.include or ())) if given else ()
    excluded = tuple(dict.fromkeys(given.exclude or ())) if given else ()
    if at and included and excluded:
        reading.mistake(at, "set either include or exclude, not both")
    if given and at:
        _check_names(given.include, at.at("include"), reading)
        _check_names(given.exclude, at.at("exclude"), reading)
    by_label = evictor.args.namespace_label_selector
    label_at = evictor.places.get("namespace_label_selector")
    if at and len(included) == 1 and by_label is None:
        return included[0], (at.at("include"),), pods
    selectors: list[dict[str, Any]] = [write_value(by_label)] if by_label else []
    places = [label_at] if label_at else []
    for operator, names, field in (("In", included, "include"), ("NotIn", excluded, "exclude")):
        if at and names:
            requirement = {"key": NAMESPACE_NAME_LABEL, "operator": operator, "values": list(names)}
            selectors.append({"matchExpressions": [requirement]})
            places.append(at.at(field))
    if included:
        why = ""
    else:
        why = (
            "descheduler leaves no namespace out by itself, kube-system neither. Left out, the field means all but "
            "kube-system, kube-public and kube-node-lease."
        )
    setting = Setting("namespaceSelector", _all_of(selectors), why, tuple(places))
    return "", (), (setting, *pods)


def _check_names(names: Iterable[str] | None, place: SourcePlace, reading: Reading) -> None:
    for index, name in enumerate(names or ()):
        if not _NAMESPACE.fullmatch(name):
            reading.mistake(place.item(index), f"must be the name of a namespace, not {shown(name)}")


def _pods(evictor: Sourced[DefaultEvictorArgs], spread: Sourced[SpreadArgs]) -> Iterator[Setting]:
    given: list[tuple[LabelSelector, SourcePlace]] = [
        (source.args.label_selector, source.places["label_selector"])
        for source in (evictor, spread)
        if source.args.label_selector is not None
    ]
    if given:
        yield Setting(
            "podSelector",
            _all_of(write_value(selector) for selector, _ in given),
            "All pods that a constraint selects count, as for the kube-scheduler; descheduler counts those it "
            "selects only.",
            tuple(place for _, place in given),
        )


def _all_of(selectors: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the selector that selects what all of them do."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for selector in selectors:
        for key, value in (selector.get("matchLabels") or {}).items():
            if labels.setdefault(key, value) != value:
                expressions.append({"key": key, "operator": "In", "values": [value]})
        expressions += [
            {name: value for name, value in each.items() if name != "values" or value}
            for each in selector.get("matchExpressions") or ()
        ]
    merged: dict[str, Any] = {}
    if labels:
        merged["matchLabels"] = labels
    if expressions:
        merged["matchExpressions"] = expressions
    return merged


_NAME: Final = "descheduler"
_LONGEST_NAME: Final = 63
_MODE: Final = (
    "DryRun plans and reports, and evicts nothing. When the plan is what you expect (see `respread plan` and this "
    f"policy's status), take {SPREAD} out of descheduler and write Enforce here."
)
_PRIORITY: Final = (
    "descheduler runs all profiles; here exactly one policy governs a pod: of those that select it the one of the "
    "highest priority."
)


class Draft(NamedTuple):
    """A policy to be written."""

    namespace: str
    """Empty for a ClusterRebalancePolicy."""
    namespace_places: tuple[SourcePlace, ...]
    """Where it is named."""
    name: str
    profile: ProfileParts
    settings: tuple[Setting, ...]
    remarks: tuple[Remark, ...]

    @property
    def kind(self) -> PolicyKind:
        """The kind of the policy."""
        return "RebalancePolicy" if self.namespace else "ClusterRebalancePolicy"


class Migrated(NamedTuple):
    """The result for a DeschedulerPolicy."""

    place: SourcePlace
    remarks: tuple[Remark, ...]
    """Remarks about settings for all profiles, and about profiles that don't restore topology spread."""
    drafts: tuple[Draft, ...]


def migrate(found: Iterable[FoundPolicy], reading: Reading) -> list[Migrated]:
    """Return the results for policies, and report their errors to `reading`."""
    migrated = [_migrate(each, reading) for each in found]
    drafts = [draft for each in migrated for draft in each.drafts]
    names, priorities = _names(drafts), _priorities(drafts)
    position = 0
    finished: list[Migrated] = []
    for each in migrated:
        mine: list[Draft] = []
        for draft in each.drafts:
            settings = (*priorities[position], *draft.settings)
            mine.append(draft._replace(name=names[position], settings=settings))
            _check(mine[-1], reading)
            position += 1
        finished.append(each._replace(drafts=tuple(mine)))
    return finished


def manifest(draft: Draft) -> dict[str, Any]:
    """Return a policy as the API server takes it."""
    metadata = {"name": draft.name, **({"namespace": draft.namespace} if draft.namespace else {})}
    spec: dict[str, Any] = {}
    for setting in draft.settings:
        *above, name = setting.field.split(".")
        at = spec
        for part in above:
            at = at.setdefault(part, {})
        at[name] = setting.value
    return {"apiVersion": API_VERSION, "kind": draft.kind, "metadata": metadata, "spec": spec}


def _migrate(found: FoundPolicy, reading: Reading) -> Migrated:
    before = len(reading.passed_over)
    policy, profiles = _read(found, reading)
    of_runs, runs_per_hour = pace_of(found.runs, reading)
    drafts: list[Draft] = []
    remarks: list[Remark] = [*found.remarks, *_about_policy(policy), *_remarks(of_runs)]
    limits = list(_lines_of_limits(policy, runs_per_hour))
    for profile in profiles:
        spread = profile.spread
        if spread is None:
            why = f"{SPREAD} is not enabled, so there is no policy for it."
            remarks.append(Remark((profile.place,), why))
            if places := tuple(dict.fromkeys(profile.evictor.places.values())):
                remarks.append(Remark(places, "It is about plugins that stay with descheduler."))
            remarks += profile.remarks
            continue
        drafts.append(_draft(profile, spread, (*limits, *of_runs), reading))
    remarks += _remarks(limits)
    if not drafts:
        why = "It stays with descheduler: there is no policy to say it in."
        remarks += [Remark(line.places, why) for line in (*limits, *of_runs) if isinstance(line, Setting)]
    passed_over = reading.passed_over[before:]
    return Migrated(found.place, (*remarks, *passed_over), tuple(drafts))


def _read(found: FoundPolicy, reading: Reading) -> tuple[Sourced[DeschedulerPolicy], tuple[ProfileParts, ...]]:
    version = found.document.get("apiVersion")
    if version == f"{GROUP}/v1alpha1":
        common, profile = read_v1alpha1(found.document, found.place, reading)
        return common, (profile,)
    if version != f"{GROUP}/v1alpha2":
        given = "is required" if version is None else f"{shown(version)} can't be read"
        reading.mistake(found.place.at("apiVersion"), f"{given}: it must be {GROUP}/v1alpha1 or {GROUP}/v1alpha2")
        return Sourced(DeschedulerPolicy(), {}), ()
    policy = reading.sourced(DeschedulerPolicy, found.document, found.place)
    at = found.place.at("profiles")
    profiles = tuple(
        read_profile(each, at.item(index), reading) for index, each in enumerate(policy.args.profiles or ())
    )
    return policy, profiles


def _draft(profile: ProfileParts, spread: Sourced[SpreadArgs], shared: Iterable[Line], reading: Reading) -> Draft:
    """Return the policy for a profile. `shared` contains what all policies get from elsewhere."""
    namespace, namespace_places, selecting = _selection_of(profile.evictor, spread, reading)
    own: list[Line] = [
        Setting("mode", "DryRun", _MODE),
        *selecting,
        *_lines_of_spread(spread),
        *lines_of_evictor(profile.evictor, reading),
    ]
    settings = tuple(line for line in (*own, *shared) if isinstance(line, Setting))
    return Draft(namespace, namespace_places, _NAME, profile, settings, (*profile.remarks, *_remarks(own)))


def _remarks(lines: Iterable[Line]) -> Iterator[Remark]:
    return (line for line in lines if isinstance(line, Remark))


def _about_policy(policy: Sourced[DeschedulerPolicy]) -> Iterator[Remark]:
    args, places = policy
    if args.node_selector:
        yield Remark(
            (places["node_selector"],),
            "Respread counts all nodes that the kube-scheduler counts, and evicts from each of them. Say which pods "
            "may be evicted by podSelector, or put the annotation respread.dev/evict: never on the others.",
            caution=True,
        )
    if args.eviction_failure_event_notification is not None:
        yield Remark(
            (places["eviction_failure_event_notification"],),
            "Respread always writes Events, of evictions and of refusals, on the policy and the workload.",
        )
    for field in ("metrics_collector", "metrics_providers"):
        if field in places:
            yield Remark((places[field],), "Respread does not look at usage, so it needs no metrics of pods and nodes.")
    if "tracing" in places:
        yield Remark((places["tracing"],), "Respread writes no traces; its metrics have the time of each phase.")


def _names(drafts: Iterable[Draft]) -> list[str]:
    """Return a unique name for each policy, from the name of the profile."""
    names: list[str] = []
    for draft in drafts:
        words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", draft.profile.name).lower()).strip(
            "-"
        )
        base = "-".join(filter(None, (_NAME, words)))[:_LONGEST_NAME].strip("-")
        name, count = base, 1
        while name in names:
            count += 1
            name = f"{base}-{count}"
        names.append(name)
    return names


def _priorities(drafts: Iterable[Draft]) -> list[tuple[Setting, ...]]:
    """Return a priority for each of the policies that may select the same pods. The first has the highest."""
    drafts = tuple(drafts)
    left = Counter(draft.namespace for draft in drafts)
    several = {namespace for namespace, count in left.items() if count > 1}
    priorities: list[tuple[Setting, ...]] = []
    for draft in drafts:
        left[draft.namespace] -= 1
        setting = Setting("priority", left[draft.namespace], _PRIORITY, (draft.profile.place,))
        priorities.append((setting,) if draft.namespace in several else ())
    return priorities


def _check(draft: Draft, reading: Reading) -> None:
    """Read a policy as the operator does, and report its errors at the places that they came from."""
    for problem in decode_manifest(manifest(draft)).problems:
        if problem.field.startswith("spec.windows"):
            continue  # Already reported, about the schedule itself.
        causes = [each for each in draft.settings if f"{problem.field}.".startswith(f"spec.{each.field}")]
        place = next((each.places[-1] for each in causes if each.places), draft.profile.place)
        reading.mistake(place, f"{problem.message} ({problem.field} of a policy)")
