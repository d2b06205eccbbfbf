"""Finds policies of descheduler, and how descheduler runs, in files: also in ConfigMaps and in values of its chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import yaml

from respread.api.structures import shown, suggestion
from respread_cli.migrate.descheduler import EVICTOR, GROUP, SPREAD
from respread_cli.migrate.reading import Reading, Remark, SourcePlace
from respread_cli.migrate.runs import CommandOption, DeschedulerRun, read_manifest
from respread_cli.read.yaml_documents import read_documents

_POLICY_KIND: Final = "DeschedulerPolicy"
_POLICY_KEY: Final = "policy.yaml"
_RUN_KINDS: Final = ("CronJob", "Deployment", "Job")
_TAKES: Final = (
    "give a DeschedulerPolicy, a ConfigMap that holds one in data, or the values of descheduler's Helm chart"
)
_POLICY: Final = "deschedulerPolicy"
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
_READ: Final = (_POLICY, _VERSION, "kind", "schedule", "timeZone", "suspend", "deschedulingInterval", "cmdOptions")
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


class FoundPolicy(NamedTuple):
    """A DeschedulerPolicy of either version, and what is known from where it was found."""

    document: Mapping[str, Any]
    place: SourcePlace
    runs: tuple[DeschedulerRun, ...] = ()
    remarks: tuple[Remark, ...] = ()
    config_map: tuple[str, str] | None = None
    """The namespace and name of the ConfigMap that holds it."""


def find_policies(files: Iterable[str], reading: Reading) -> list[FoundPolicy]:
    """Return all policies of files in their order, each with the ways in which it runs.

    A policy in a ConfigMap runs in the workloads that mount it. Any other policy runs in the workloads with descheduler
    that mount none of these.

    Raises:
        CommandError: if a file can't be read, or is not YAML.
    """
    found: list[FoundPolicy] = []
    runs: list[DeschedulerRun] = []
    for file in files:
        for where, document in read_documents(file):
            if not isinstance(document, Mapping):
                reading.mistake(SourcePlace(where), f"must be an object, not {shown(document)}: {_TAKES}")
            elif document.get("kind") in _RUN_KINDS and "apiVersion" in document:
                run = read_manifest(document, SourcePlace(where), reading)
                runs += [run] if run else []
            else:
                found += _policies_in(document, SourcePlace(where), reading)
    mounted = {name for run in runs for name in run.config_maps}
    named = {each.config_map for each in found} & mounted
    free = tuple(run for run in runs if not run.config_maps & named)
    own = (each.runs or tuple(run for run in runs if each.config_map in run.config_maps) for each in found)
    return [each._replace(runs=mine or free) for each, mine in zip(found, own, strict=True)]


def nothing_found(files: Iterable[str]) -> str:
    """Return the message for input without a policy."""
    names = ", ".join("standard input" if file == "-" else file for file in files)
    return f"{names}: there is no policy of descheduler in it: {_TAKES}."


def _policies_in(document: Mapping[Any, Any], place: SourcePlace, reading: Reading) -> list[FoundPolicy]:
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if kind == _POLICY_KIND or str(api_version).partition("/")[0] == GROUP:
        return [FoundPolicy(document, place)]
    if kind == "ConfigMap":
        return _in_config_map(document, place, reading)
    if "apiVersion" in document:
        return []
    if found := _values_in(document, place):
        values, at = found
        policy, added = _with_defaults(values, at, reading)
        if policy is None:
            reading.mistake(at.at(_POLICY), "the chart writes no policy with null: give the ConfigMap that holds it")
            return []
        remarks = (*added, *_remarks_on(values, at))
        return [FoundPolicy(policy, at.at(_POLICY), (_run_of(values, at, reading),), remarks)]
    if "profiles" in document or "strategies" in document:
        version = "v1alpha2" if "profiles" in document else "v1alpha1"
        reading.mistake(
            place.at("apiVersion"), f"is required: {GROUP}/{version}, by what is in it; and kind: {_POLICY_KIND}"
        )
    return []


def _in_config_map(document: Mapping[Any, Any], place: SourcePlace, reading: Reading) -> list[FoundPolicy]:
    metadata = reading.mapping(document.get("metadata"), place.at("metadata"))
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name"))
    found: list[FoundPolicy] = []
    for key, text in reading.mapping(document.get("data"), place.at("data")).items():
        if not isinstance(text, str) or (key != _POLICY_KEY and _POLICY_KIND not in text):
            continue
        where = SourcePlace(f"{place.document}, ConfigMap {'/'.join(filter(None, (namespace, name)))}, {key}")
        try:
            policies = [each for each in yaml.safe_load_all(text) if each is not None]
        except yaml.YAMLError as error:
            reading.mistake(where, f"is not YAML: {error}")
            continue
        for policy in policies:
            if isinstance(policy, Mapping):
                found.append(FoundPolicy(policy, where, config_map=(namespace, name)))
            else:
                reading.mistake(where, f"must be a {_POLICY_KIND}, not {shown(policy)}")
    return found


def _values_in(document: Mapping[Any, Any], place: SourcePlace) -> tuple[Mapping[Any, Any], SourcePlace] | None:
    """Return the chart's values if a document contains some, also as those of a subchart, and their place."""
    runs = "apiVersion" not in document and ("schedule" in document or document.get("kind") in _KINDS)
    if runs or any(name in document for name in (*_READ[:2], "deschedulingInterval")):
        return document, place
    below = document.get(_SUBCHART)
    if isinstance(below, Mapping):
        return _values_in(below, place.at(_SUBCHART))
    return None


def _with_defaults(
    values: Mapping[Any, Any], place: SourcePlace, reading: Reading
) -> tuple[dict[str, Any] | None, list[Remark]]:
    """Return the policy that the chart creates from these values, and the parts of it that the values don't contain.

    Helm merges objects and replaces lists; null removes a default. Without a policy in the values, the chart's own is
    used, which restores topology spread.

    Returns:
        The policy, None if the values remove it.
    """
    at = place.at(_POLICY)
    version = values.get(_VERSION)
    if _POLICY in values and values[_POLICY] is None:
        return None, []
    policy = dict(reading.mapping(values.get(_POLICY), at))
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


def _run_of(values: Mapping[Any, Any], place: SourcePlace, reading: Reading) -> DeschedulerRun:
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
        return DeschedulerRun("The Deployment of the chart", options=tuple(options))
    zone = values.get("timeZone")
    if zone is not None and not isinstance(zone, str):
        reading.mistake(place.at("timeZone"), f"must be the name of a time zone, not {shown(zone)}")
    return DeschedulerRun(
        name="The CronJob of the chart",
        schedule=_text(values, "schedule", "*/2 * * * *", place, reading),
        time_zone=zone if isinstance(zone, str) else None,
        timed=(place.at("schedule"), *([place.at("timeZone")] if zone is not None else [])),
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


def _remarks_on(values: Mapping[Any, Any], place: SourcePlace) -> list[Remark]:
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
