"""Which kinds of pods the DefaultEvictor protects, and which of these a policy can express."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from respread.cli.migrate.descheduler import DefaultEvictorArgs
from respread.cli.migrate.lines import Line, Remark, Setting
from respread.cli.migrate.place import SourcePlace
from respread.cli.migrate.reading import Reading, Sourced

_FLAGS: Final = {
    "evict_local_storage_pods": ("PodsWithLocalStorage", False),
    "evict_daemon_set_pods": ("DaemonSetPods", False),
    "evict_system_critical_pods": ("SystemCriticalPods", False),
    "evict_failed_bare_pods": ("FailedBarePods", False),
    "ignore_pvc_pods": ("PodsWithPVC", True),
    "ignore_pods_without_pdb": ("PodsWithoutPDB", True),
}
"""The deprecated fields: the kind of pods, and whether true means that they are protected."""


class EvictorProtection(NamedTuple):
    """Whether a kind of pods is protected, as a line of the policy says."""

    on: bool
    place: SourcePlace


def read_protections(evictor: Sourced[DefaultEvictorArgs], reading: Reading) -> Mapping[str, EvictorProtection]:
    """Return the setting for each kind of pods, by the names in podProtections.

    The deprecated fields mean the same as podProtections. As in descheduler, using both is an error.
    """
    args, places = evictor
    said: dict[str, EvictorProtection] = {}
    for field, (kind, protected_if_true) in _FLAGS.items():
        flag: bool | None = getattr(args, field)
        if flag is not None:
            said[kind] = EvictorProtection(protected_if_true if flag else not protected_if_true, places[field])
    listed = args.pod_protections
    if listed is None or not (listed.default_disabled or listed.extra_enabled):
        return said
    at = places["pod_protections"]
    for field in _FLAGS:
        if getattr(args, field):
            reading.mistake(places[field], f"is deprecated, and can't be set beside {at.path}: say it there")
    for index, name in enumerate(listed.default_disabled or ()):
        said[name] = EvictorProtection(False, at.at("defaultDisabled").item(index))
    for index, extra in enumerate(listed.extra_enabled or ()):
        said[extra] = EvictorProtection(True, at.at("extraEnabled").item(index))
    return said


def lines_of_protections(said: Mapping[str, EvictorProtection], evictor: Sourced[DefaultEvictorArgs]) -> Iterator[Line]:
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
            "cleaning "
            "up leave RemoveFailedPods to descheduler."
            if not bare.on
            else "Respread never evicts pods without a controller either.",
        )
    yield from _claims(said.get("PodsWithPVC"), evictor)
    if budgets := said.get("PodsWithoutPDB"):
        yield Remark(
            (budgets.place,),
            "Respread evicts pods that no PodDisruptionBudget selects. Select the pods that may be evicted by "
            "podSelector, "
            "or put the annotation respread.dev/evict: never on the others."
            if budgets.on
            else "Respread evicts pods that no PodDisruptionBudget selects, too.",
            caution=budgets.on,
        )
    if resource_claims := said.get("PodsWithResourceClaims"):
        yield Remark(
            (resource_claims.place,),
            "Respread never evicts pods with ResourceClaims: it can't tell where their replacements would land "
            "(UnknownReplacement).",
        )


def _claims(protection: EvictorProtection | None, evictor: Sourced[DefaultEvictorArgs]) -> Iterator[Line]:
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
            "Respread does not tell storage classes apart, so it leaves all pods with a PersistentVolumeClaim "
            "alone and "
            f"not those of {names} only. Evict would allow all of them; they only are where their volumes can be "
            "reached.",
            (protection.place, at.at("protectedStorageClasses")),
        )
    else:
        yield Setting("victims.persistentVolumeClaims", "Protect", "", (protection.place, *([at] if at else [])))


def _word(*, on: bool) -> str:
    return "Protect" if on else "Evict"
