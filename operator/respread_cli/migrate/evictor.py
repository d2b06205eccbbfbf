"""Converts the arguments of the DefaultEvictor, except its selectors: what it protects, and what a policy can."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from respread.api.fields import format_duration, parse_duration
from respread.api.structures import shown
from respread_cli.migrate.descheduler import DefaultEvictorArgs
from respread_cli.migrate.reading import Line, Reading, Remark, Setting, Sourced, SourcePlace

_FLAGS: Final = {
    "evict_local_storage_pods": ("PodsWithLocalStorage", False),
    "evict_daemon_set_pods": ("DaemonSetPods", False),
    "evict_system_critical_pods": ("SystemCriticalPods", False),
    "evict_failed_bare_pods": ("FailedBarePods", False),
    "ignore_pvc_pods": ("PodsWithPVC", True),
    "ignore_pods_without_pdb": ("PodsWithoutPDB", True),
}
"""The deprecated fields: the kind of pods, and whether true means that they are protected."""


class _Protection(NamedTuple):
    """Whether a kind of pods is protected, as a line of the policy says."""

    on: bool
    place: SourcePlace


def _read_protections(evictor: Sourced[DefaultEvictorArgs], reading: Reading) -> Mapping[str, _Protection]:
    """Return the setting for each kind of pods, by the names in podProtections.

    The deprecated fields mean the same as podProtections. As in descheduler, using both is an error.
    """
    args, places = evictor
    said: dict[str, _Protection] = {}
    for field, (kind, protected_if_true) in _FLAGS.items():
        flag: bool | None = getattr(args, field)
        if flag is not None:
            said[kind] = _Protection(protected_if_true if flag else not protected_if_true, places[field])
    listed = args.pod_protections
    if listed is None or not (listed.default_disabled or listed.extra_enabled):
        return said
    at = places["pod_protections"]
    for field in _FLAGS:
        if getattr(args, field):
            reading.mistake(places[field], f"is deprecated, and can't be set beside {at.path}: say it there")
    for index, name in enumerate(listed.default_disabled or ()):
        said[name] = _Protection(False, at.at("defaultDisabled").item(index))
    for index, extra in enumerate(listed.extra_enabled or ()):
        said[extra] = _Protection(True, at.at("extraEnabled").item(index))
    return said


def _lines_of_protections(said: Mapping[str, _Protection], evictor: Sourced[DefaultEvictorArgs]) -> Iterator[Line]:
    """Yield the result for each, except SystemCriticalPods, which the priority threshold covers."""
    if storage := said.get("PodsWithLocalStorage"):
        yield Setting("victims.localStorage", _word(on=storage.on), "", (storage.place,))
    if daemon := said.get("DaemonSetPods"):
        yield Remark(
            (daemon.place,),
            "Respread never evicts pods of DaemonSets: their replacements come back to the same node."
            if not daemon.on
            else "Respread never evicts pods of DaemonSets either.",
        )
    if bare := said.get("FailedBarePods"):
        yield Remark(
            (bare.place,),
            "Respread never evicts pods without a controller, and failed pods count for nothing in a spread. For "
            "cleaning up leave RemoveFailedPods to descheduler."
            if not bare.on
            else "Respread never evicts pods without a controller either.",
        )
    yield from _claims(said.get("PodsWithPVC"), evictor)
    if budgets := said.get("PodsWithoutPDB"):
        yield Setting("victims.budget", "Required" if budgets.on else "Optional", "", (budgets.place,))
    if resource_claims := said.get("PodsWithResourceClaims"):
        yield Remark(
            (resource_claims.place,),
            "Respread never evicts pods with ResourceClaims: it can't tell where their replacements would land "
            "(UnknownReplacement).",
        )


def _claims(protection: _Protection | None, evictor: Sourced[DefaultEvictorArgs]) -> Iterator[Line]:
    listed = evictor.args.pod_protections
    config = listed.config.pods_with_pvc if listed and listed.config else None
    classes = config.protected_storage_classes if config else None
    at = evictor.places["pod_protections"].at("config").at("PodsWithPVC") if config else None
    if protection is None or not protection.on:
        if protection:
            yield Setting("victims.persistentVolumeClaims", "Evict", "", (protection.place,))
        if at:
            yield Remark((at,), "It does nothing, as PodsWithPVC is not among extraEnabled.")
    elif classes and at:
        names = ", ".join(each.name for each in classes)
        yield Setting(
            "victims.persistentVolumeClaims",
            "Protect",
            "Respread does not tell storage classes apart, so it leaves all pods with a PersistentVolumeClaim alone "
            f"and not those of {names} only. Evict would allow all of them; they only are where their volumes can be "
            "reached.",
            (protection.place, at.at("protectedStorageClasses")),
        )
    else:
        yield Setting("victims.persistentVolumeClaims", "Protect", "", (protection.place, *([at] if at else [])))


def _word(*, on: bool) -> str:
    return "Protect" if on else "Evict"


HIGHEST_PRIORITY: Final = 2**31 - 1
_ABOVE_CRITICAL: Final = "system-node-critical"
_MOST_REPLICAS: Final = 1_000_000
_GREATEST_AGE: Final = timedelta(hours=8760)
_GO_DURATION: Final = re.compile(r"[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")


def lines_of_evictor(evictor: Sourced[DefaultEvictorArgs], reading: Reading) -> Iterator[Line]:
    """Yield the result for each argument that is set, and for defaults that differ from Respread's."""
    args, places = evictor
    yield _min_age(args.min_pod_age, places.get("min_pod_age"), reading)
    yield _min_replicas(args.min_replicas, places.get("min_replicas"))
    said = _read_protections(evictor, reading)
    yield from _priority(evictor, said.get("SystemCriticalPods"), reading)
    yield from _lines_of_protections(said, evictor)
    if args.node_fit is not None:
        yield Remark(
            (places["node_fit"],),
            "Respread only evicts where it can prove by the kube-scheduler's own rules that a replacement fits into a "
            "better domain" + ("." if args.node_fit else "; that can't be turned off."),
        )
    if args.node_selector:
        yield Remark(
            (places["node_selector"],),
            "Respread considers every node that the kube-scheduler may place a replacement on; it can't be told to "
            "look at some of them only.",
        )
    if args.no_eviction_policy is not None:
        yield Remark(
            (places["no_eviction_policy"],),
            "Respread never evicts pods with the annotation descheduler.alpha.kubernetes.io/prefer-no-eviction, as "
            "with Mandatory."
            + ("" if args.no_eviction_policy == "Mandatory" else " Take it off pods that may be evicted."),
        )


def read_go_duration(text: str, place: SourcePlace, reading: Reading) -> timedelta | None:
    """Read a duration in Go's syntax; None, and a mistake, if it is invalid."""
    if not _GO_DURATION.fullmatch(text):
        reading.mistake(place, f"must be a duration such as 30s, 5m or 1h30m, not {shown(text)}")
        return None
    return parse_duration(text)


def _min_age(text: str | None, place: SourcePlace | None, reading: Reading) -> Setting:
    if text is None or place is None:
        return Setting("victims.minAge", "0s", "For descheduler no pod is too young; Respread's own default is 1m.")
    age = read_go_duration(text, place, reading) or timedelta()
    if age > _GREATEST_AGE:
        return Setting("victims.minAge", "8760h", f"{text} there; Respread takes a year at most.", (place,))
    # No finer than a millisecond, and rather too long than too short.
    milliseconds = -(-max(age, timedelta()) // timedelta(milliseconds=1))
    rounded = format_duration(timedelta(milliseconds=milliseconds)) if milliseconds else "0s"
    return Setting("victims.minAge", rounded, "", (place,))


def _min_replicas(count: int | None, place: SourcePlace | None) -> Setting:
    if count is None or place is None:
        why = "descheduler evicts the only pod of a workload too; Respread's own default, 2, leaves it alone."
        return Setting("victims.minReplicas", 1, why)
    why = "" if count else "0 and 1 mean the same."
    return Setting("victims.minReplicas", min(max(count, 1), _MOST_REPLICAS), why, (place,))


def _priority(evictor: Sourced[DefaultEvictorArgs], critical: _Protection | None, reading: Reading) -> Iterator[Line]:
    threshold, place = evictor.args.priority_threshold, evictor.places.get("priority_threshold")
    given = (place,) if threshold and place else ()
    if threshold and place and threshold.name and threshold.value is not None:
        reading.mistake(place, "set either name or value, not both")
    if threshold and place and threshold.name == _ABOVE_CRITICAL:
        reading.mistake(place.at("name"), f"descheduler refuses {_ABOVE_CRITICAL}: it is above system-cluster-critical")
    if critical and not critical.on:
        why = "No priority protects a pod, system-node-critical pods neither: descheduler evicts them all."
        if given:
            why += " So it does whatever the threshold says."
        yield Setting("victims.priorityThreshold", {"value": HIGHEST_PRIORITY}, why, (critical.place, *given))
        return
    places = (*((critical.place,) if critical else ()), *given)
    if threshold and threshold.value is not None:
        yield Setting("victims.priorityThreshold", {"value": threshold.value}, "", places)
    elif threshold and threshold.name:
        yield Setting("victims.priorityThreshold", {"name": threshold.name}, "", places)
    elif places:
        yield Setting("victims.priorityThreshold", {"name": "system-cluster-critical"}, "", places)
