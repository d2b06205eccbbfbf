"""The values of descheduler's Helm chart, and what the chart itself adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from respread.api.structures import shown, suggestion
from respread_cli.migrate.descheduler import EVICTOR, SPREAD
from respread_cli.migrate.reading import Reading, Remark, SourcePlace
from respread_cli.migrate.runs import CommandOption, DeschedulerRun

POLICY: Final = "deschedulerPolicy"
_VERSION: Final = "deschedulerPolicyAPIVersion"
_ONLY_V1ALPHA1: Final = frozenset(
    {
        "strategies",
        "evictFailedBarePods",
        "evictLocalStoragePods",
        "evictDaemonSetPods",
        "evictSystemCriticalPods",
        "ignorePvcPods",
    }
)
"""Fields that identify a policy of v1alpha1 if the values don't change the chart's version."""
_READ: Final = (POLICY, _VERSION, "kind", "schedule", "timeZone", "suspend", "deschedulingInterval", "cmdOptions")
_KINDS: Final = ("CronJob", "Deployment")
_ALL_STRATEGIES: Final = (
    "RemovePodsHavingTooManyRestarts",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingInterPodAntiAffinity",
)
_PROFILES: Final = [
    {
        "name": "default",
        "pluginConfig": [
            {
                "name": EVICTOR,
                "args": {
                    "podProtections": {"defaultDisabled": ["PodsWithLocalStorage"], "extraEnabled": ["PodsWithPVC"]}
                },
            }
        ],
        "plugins": {
            "balance": {"enabled": ["RemoveDuplicates", SPREAD, "LowNodeUtilization"]},
            "deschedule": {"enabled": list(_ALL_STRATEGIES)},
        },
    }
]
_STRATEGIES: Final = {
    name: {"enabled": True} for name in ("RemoveDuplicates", SPREAD, "LowNodeUtilization", *_ALL_STRATEGIES)
}
_DEPLOYMENT: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "command",
        "commonLabels",
        "cronJobAnnotations",
        "cronJobApiVersion",
        "cronJobLabels",
        "deploymentAnnotations",
        "dnsConfig",
        "extraServiceAccountVolumeMounts",
        "extraServiceAccountVolumes",
        "failedJobsHistoryLimit",
        "fullnameOverride",
        "global",
        "image",
        "imagePullSecrets",
        "initContainers",
        "jobAnnotations",
        "jobLabels",
        "leaderElection",
        "livenessProbe",
        "nameOverride",
        "namespaceOverride",
        "nodeSelector",
        "podAnnotations",
        "podDisruptionBudget",
        "podLabels",
        "podSecurityContext",
        "ports",
        "priorityClassName",
        "rbac",
        "replicas",
        "resources",
        "securityContext",
        "service",
        "serviceAccount",
        "serviceMonitor",
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "tolerations",
        "topologySpreadConstraints",
        "ttlSecondsAfterFinished",
    }
)
"""Values for descheduler's own objects."""
_TOLD: Final = frozenset({"USER-SUPPLIED VALUES", "COMPUTED VALUES"})
"""The line that `helm get values` starts with."""
_SUBCHART: Final = "descheduler"


def values_in(document: Mapping[Any, Any], place: SourcePlace) -> tuple[Mapping[Any, Any], SourcePlace] | None:
    """Return the chart's values if a document contains some, also as those of a subchart, and their place."""
    if any(name in document for name in (*_READ[:2], "deschedulingInterval")) or _looks_like_values(document):
        return document, place
    below = document.get(_SUBCHART)
    if isinstance(below, Mapping):
        return values_in(below, place.at(_SUBCHART))
    return None


def _looks_like_values(document: Mapping[Any, Any]) -> bool:
    return "apiVersion" not in document and ("schedule" in document or document.get("kind") in _KINDS)


def with_defaults(
    values: Mapping[Any, Any], place: SourcePlace, reading: Reading
) -> tuple[dict[str, Any] | None, list[Remark]]:
    """Return the policy that the chart creates from these values, and the parts of it that the values don't contain.

    Helm merges objects and replaces lists; null removes a default. Without a policy in the values, the chart's own is
    used, which restores topology spread.

    Returns:
        The policy, None if the values remove it.
    """
    at = place.at(POLICY)
    version = values.get(_VERSION)
    if POLICY in values and values[POLICY] is None:
        return None, []
    policy = dict(reading.mapping(values.get(POLICY), at))
    if version is None:
        version = "descheduler/v1alpha1" if policy.keys() & _ONLY_V1ALPHA1 else "descheduler/v1alpha2"
    if not isinstance(version, str):
        reading.mistake(place.at(_VERSION), f"must be a string such as descheduler/v1alpha2, not {shown(version)}")
    remarks: list[Remark] = []
    if version == "descheduler/v1alpha1":
        given = policy.get("strategies", {})
        if isinstance(given, Mapping):
            added = [name for name in _STRATEGIES if name not in given]
            policy["strategies"] = {
                name: {**_STRATEGIES.get(name, {}), **value} if isinstance(value, Mapping) else value
                for name, value in {**_STRATEGIES, **given}.items()
                if value is not None
            }
            if added:
                remarks.append(_added(at.at("strategies"), f"it enables {', '.join(added)}"))
    elif "profiles" not in policy:
        policy["profiles"] = _PROFILES
        remarks.append(
            _added(at.at("profiles"), f"it has {SPREAD}, evicts pods with local storage and protects those with PVCs")
        )
    return {"apiVersion": version, "kind": "DeschedulerPolicy", **policy}, remarks


def _added(place: SourcePlace, what: str) -> Remark:
    why = f"Not in these values, so the chart's default holds: {what}. `helm get values --all` writes your version's."
    return Remark((place,), why)


def run_of(values: Mapping[Any, Any], place: SourcePlace, reading: Reading) -> DeschedulerRun:
    """Return how the chart runs descheduler with these values."""
    kind = values.get("kind") or "CronJob"
    if kind not in _KINDS:
        reading.mistake(place.at("kind"), f"must be CronJob or Deployment, not {shown(kind)}")
    options = [
        CommandOption(str(name), None if value is None else str(value), place.at("cmdOptions").at(str(name)))
        for name, value in reading.mapping(values.get("cmdOptions"), place.at("cmdOptions")).items()
    ]
    if kind == "Deployment":
        interval = _text(values, "deschedulingInterval", "5m", place, reading)
        options.append(CommandOption("descheduling-interval", interval, place.at("deschedulingInterval")))
        return DeschedulerRun("The Deployment of the chart", place, options=tuple(options))
    zone = values.get("timeZone")
    if zone is not None and not isinstance(zone, str):
        reading.mistake(place.at("timeZone"), f"must be the name of a time zone, not {shown(zone)}")
    return DeschedulerRun(
        name="The CronJob of the chart",
        place=place,
        schedule=_text(values, "schedule", "*/2 * * * *", place, reading),
        schedule_place=place.at("schedule"),
        time_zone=zone if isinstance(zone, str) else None,
        time_zone_place=place.at("timeZone") if zone is not None else None,
        suspended=place.at("suspend") if values.get("suspend") else None,
        options=tuple(options),
    )


def _text(values: Mapping[Any, Any], name: str, default: str, place: SourcePlace, reading: Reading) -> str:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        reading.mistake(place.at(name), f"must be a string such as {default}, not {shown(value)}")
        return default
    return value


def remarks_on(values: Mapping[Any, Any], place: SourcePlace) -> list[Remark]:
    """Return remarks about values that don't concern evictions."""
    deployment = [place.at(name) for name in values if name in _DEPLOYMENT or (name == "suspend" and not values[name])]
    idle = "schedule" if values.get("kind") == "Deployment" else "deschedulingInterval"
    remarks = [
        Remark(
            (place.at(str(name)),),
            f"descheduler's chart has no such value{suggestion(str(name), [*_READ, *_DEPLOYMENT])}.",
        )
        for name in values
        if name not in _READ and name not in _DEPLOYMENT and name not in _TOLD
    ]
    if idle in values:
        remarks.append(
            Remark((place.at(idle),), f"The chart does not use it with kind {values.get('kind') or 'CronJob'}.")
        )
    if values.get("kind") == "Deployment":
        remarks += [
            Remark((place.at(name),), "The chart does not use it with kind Deployment.")
            for name in ("timeZone", "suspend")
            if values.get(name)
        ]
    if "kind" in values:
        remarks.append(Remark((place.at("kind"),), "Respread runs all the time, as a Deployment."))
    if deployment:
        why = "They are about descheduler's own objects; those of Respread are in manifests/, and docs/install.md."
        remarks.append(Remark(tuple(deployment), why))
    return remarks
