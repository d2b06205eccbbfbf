"""Finds policies of descheduler, and how descheduler runs, in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import yaml

from respread.api.structures import shown
from respread_cli.migrate import chart
from respread_cli.migrate.descheduler import GROUP
from respread_cli.migrate.reading import Reading, Remark, SourcePlace
from respread_cli.migrate.runs import DeschedulerRun, read_manifest
from respread_cli.read.yaml_documents import read_documents

_POLICY_KIND: Final = "DeschedulerPolicy"
_POLICY_KEY: Final = "policy.yaml"
_RUN_KINDS: Final = ("CronJob", "Deployment", "Job")


class FoundPolicy(NamedTuple):
    """A DeschedulerPolicy of either version, and what is known from where it was found."""

    document: Mapping[str, Any]
    place: SourcePlace
    runs: tuple[DeschedulerRun, ...] = ()
    remarks: tuple[Remark, ...] = ()


class _InConfigMap(NamedTuple):
    policy: FoundPolicy
    config_map: tuple[str, str]
    """Its namespace and name."""


def find_policies(files: Iterable[str], reading: Reading) -> list[FoundPolicy]:
    """Return all policies of files in their order, each with the ways in which it runs.

    A policy in a ConfigMap runs in the workloads that mount it. Any other policy runs in the workloads with descheduler
    that mount none of these.

    Raises:
        CommandError: if a file can't be read, or is not YAML.
    """
    found: list[FoundPolicy | _InConfigMap] = []
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
    named = {each.config_map for each in found if isinstance(each, _InConfigMap)} & mounted
    free = tuple(run for run in runs if not run.config_maps & named)
    policies: list[FoundPolicy] = []
    for each in found:
        if isinstance(each, _InConfigMap):
            own = tuple(run for run in runs if each.config_map in run.config_maps)
            policies.append(each.policy._replace(runs=own or free))
        else:
            policies.append(each if each.runs else each._replace(runs=free))
    return policies


_TAKES: Final = (
    "give a DeschedulerPolicy, a ConfigMap that holds one in data, or the values of descheduler's Helm chart"
)


def nothing_found(files: Iterable[str]) -> str:
    """Return the message for input without a policy."""
    names = ", ".join("standard input" if file == "-" else file for file in files)
    return f"{names}: there is no policy of descheduler in it: {_TAKES}."


def _policies_in(document: Mapping[Any, Any], place: SourcePlace, reading: Reading) -> list[FoundPolicy | _InConfigMap]:
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if kind == _POLICY_KIND or str(api_version).partition("/")[0] == GROUP:
        return [FoundPolicy(document, place)]
    if kind == "ConfigMap":
        return list(_in_config_map(document, place, reading))
    if "apiVersion" in document:
        return []
    if found := chart.values_in(document, place):
        values, at = found
        policy, added = chart.with_defaults(values, at, reading)
        if policy is None:
            reading.mistake(
                at.at(chart.POLICY), "the chart writes no policy with null: give the ConfigMap that holds it"
            )
            return []
        remarks = (*added, *chart.remarks_on(values, at))
        return [FoundPolicy(policy, at.at(chart.POLICY), (chart.run_of(values, at, reading),), remarks)]
    if "profiles" in document or "strategies" in document:
        version = "v1alpha2" if "profiles" in document else "v1alpha1"
        reading.mistake(
            place.at("apiVersion"), f"is required: {GROUP}/{version}, by what is in it; and kind: {_POLICY_KIND}"
        )
    return []


def _in_config_map(document: Mapping[Any, Any], place: SourcePlace, reading: Reading) -> list[_InConfigMap]:
    metadata = reading.mapping(document.get("metadata"), place.at("metadata"))
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name"))
    found: list[_InConfigMap] = []
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
                found.append(_InConfigMap(FoundPolicy(policy, where), (namespace, name)))
            else:
                reading.mistake(where, f"must be a {_POLICY_KIND}, not {shown(policy)}")
    return found
