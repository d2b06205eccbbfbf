"""The namespaces and labels of a profile, as the selectors of one policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from respread.api.label_selector import LabelSelector
from respread.api.policy import NAMESPACE_NAME_LABEL, PolicyKind
from respread.api.structures import shown, write_value
from respread.cli.migrate.descheduler import DefaultEvictorArgs, SpreadArgs
from respread.cli.migrate.lines import Setting
from respread.cli.migrate.place import SourcePlace
from respread.cli.migrate.reading import Reading, Sourced

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class PolicyScope(NamedTuple):
    """The kind of policy that fits, its namespace, and the settings that select."""

    kind: PolicyKind
    namespace: str
    """Empty for a ClusterRebalancePolicy."""
    namespace_places: tuple[SourcePlace, ...]
    settings: tuple[Setting, ...]


def selection_of(evictor: Sourced[DefaultEvictorArgs], spread: Sourced[SpreadArgs], reading: Reading) -> PolicyScope:
    """Return which policy selects the pods of a profile.

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
        return PolicyScope("RebalancePolicy", included[0], (at.at("include"),), pods)
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
    return PolicyScope("ClusterRebalancePolicy", "", (), (setting, *pods))


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
