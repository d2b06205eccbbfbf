"""Reads policies and reports all of their errors at once.

The API server validates objects against the CRD, but the CRD may be of another version than the operator, and the CLI
reads files that no API server has seen. So no content may make reading fail. An error becomes a `Problem` of the policy
with the name of the field, and the field gets its default. Some checks repeat the CRD's CEL rules, and others, of time
zones and cron schedules, are only here, because CEL can't do them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from respread.api.fields import (
    LABEL_KEY_PATTERN,
    LABEL_VALUE_PATTERN,
    MAX_LABEL_PREFIX_LENGTH,
    MAX_LABEL_VALUE_LENGTH,
    LabelSelector,
    Problem,
    UnknownField,
)
from respread.api.policy import (
    API_VERSION,
    REQUEST_NEEDS_PRIORITY_CLASS,
    ClusterPolicySpec,
    Policy,
    PolicyKind,
    PolicySpec,
    Window,
)
from respread.api.status import MAX_GENERATION, PolicyStatus
from respread.api.structures import read_clamped, read_structure, shown, suggestion

_FIELDS_OF_OBJECTS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_Generation: Any = Annotated[int, msgspec.Meta(ge=0, le=MAX_GENERATION)]
_Time: Any = Annotated[datetime, msgspec.Meta(tz=True)]
_DNS_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


class NotAPolicyError(ValueError):
    """The object is not a policy."""


def decode_manifest(document: object, *, default_namespace: str = "default") -> Policy:
    """Read a policy of either kind from a document with apiVersion and kind, such as a YAML file.

    Raises:
        NotAPolicyError: if the document is not a RebalancePolicy or ClusterRebalancePolicy, or has no name.
    """
    if not isinstance(document, Mapping):
        raise NotAPolicyError(
            f"a policy must be an object with apiVersion, kind, metadata and spec, not {shown(document)}"
        )
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if api_version != API_VERSION:
        raise NotAPolicyError(f"apiVersion: a policy's is {API_VERSION}, this is {shown(api_version)}")
    if kind == "ClusterRebalancePolicy":
        return _with_problems_of_manifest(decode_policy("ClusterRebalancePolicy", document), document)
    if kind == "RebalancePolicy":
        policy = _with_problems_of_manifest(decode_policy("RebalancePolicy", document), document)
        return policy if policy.namespace else msgspec.structs.replace(policy, namespace=default_namespace)
    raise NotAPolicyError(f"kind: must be RebalancePolicy or ClusterRebalancePolicy, this is {shown(kind)}")


def decode_policy(kind: PolicyKind, document: object) -> Policy:
    """Read a policy from its JSON object, with every problem that can be found without the cluster.

    Objects within a list don't have their kind.

    Raises:
        NotAPolicyError: if it is not an object, or has no `metadata.name`. No other content raises.
    """
    if not isinstance(document, Mapping):
        raise NotAPolicyError(f"a {kind} must be an object with metadata and spec, not {shown(document)}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(name, str) or not name:
        raise NotAPolicyError(f"metadata.name: every {kind} needs a name")
    spec_type = ClusterPolicySpec if kind == "ClusterRebalancePolicy" else PolicySpec
    given = document.get("spec")
    spec, problems = read_structure(spec_type, {} if given is None else given, "spec")
    spec, more = validated(spec_type() if spec is None else spec)
    # A problem that only follows from another one is not reported: "set one of name and value" after an unreadable
    # name.
    problems += [each for each in more if not any(known.field.startswith(each.field) for known in problems)]
    return Policy(
        kind=kind,
        namespace=_field(metadata, "namespace", str, "") if kind == "RebalancePolicy" else "",
        object_name=name,
        uid=_field(metadata, "uid", str, ""),
        generation=_field(metadata, "generation", _Generation, 0),
        creation_timestamp=_field(metadata, "creationTimestamp", _Time, None),
        spec=spec,
        problems=tuple(problems),
    )


def _with_problems_of_manifest(policy: Policy, document: Mapping[Any, Any]) -> Policy:
    """Return a policy with the problems that no stored object has: the API server rejects them for every kind."""
    problems: list[Problem] = [
        UnknownField(str(field), f"there is no such field{suggestion(str(field), _FIELDS_OF_OBJECTS)}")
        for field in document
        if field not in _FIELDS_OF_OBJECTS
    ]
    name = policy.object_name
    if len(name) > MAX_LABEL_PREFIX_LENGTH or not re.fullmatch(_DNS_SUBDOMAIN, name):
        problems.append(
            Problem(
                "metadata.name",
                f"must be a DNS subdomain: lowercase letters, digits, dashes and dots, not {shown(name)}",
            )
        )
    if policy.is_cluster_policy and _field(document["metadata"], "namespace", str, ""):
        problems.append(
            Problem("metadata.namespace", f"a {policy.kind} has no namespace: remove the field, or use RebalancePolicy")
        )
    return msgspec.structs.replace(policy, problems=(*problems, *policy.problems)) if problems else policy


def decode_status(document: object) -> PolicyStatus:
    """Read the status from a policy's JSON object, with every field within its bounds.

    A value that can't be read counts as absent.
    """
    status = document.get("status") if isinstance(document, Mapping) else None
    return read_clamped(PolicyStatus, status) or PolicyStatus()


_Field = TypeVar("_Field")


def _field(metadata: Mapping[Any, Any], name: str, kind: type[_Field], default: _Field) -> _Field:
    """Return a field of an object's metadata; the default if it is absent or of another form."""
    try:
        return msgspec.convert(metadata.get(name), kind)
    except msgspec.ValidationError:
        return default


# Any moment is suitable to check whether a schedule has a next time. cronsim looks 50 years ahead.
_SOME_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
_CRON_FIELDS = 5
_MONTH = 3


_Spec = TypeVar("_Spec", bound=PolicySpec)


def validated(spec: _Spec) -> tuple[_Spec, tuple[Problem, ...]]:
    """Check a spec whose fields have the right form.

    Returns:
        The spec with the default in each invalid field, so that its selectors and windows can always be evaluated, and
        the problems.
    """
    problems: list[Problem] = []
    defaults = type(spec)()
    if isinstance(spec, ClusterPolicySpec) and isinstance(defaults, ClusterPolicySpec):
        found = list(_selector_problems(spec.namespace_selector, "spec.namespaceSelector"))
        problems += found
        if found:
            spec = msgspec.structs.replace(spec, namespace_selector=defaults.namespace_selector)
    if found := list(_selector_problems(spec.pod_selector, "spec.podSelector")):
        problems += found
        spec = msgspec.structs.replace(spec, pod_selector=defaults.pod_selector)
    threshold = spec.victims.priority_threshold
    if (threshold.name is None) == (threshold.value is None):
        problems.append(Problem("spec.victims.priorityThreshold", "set exactly one of name and value"))
        threshold = defaults.victims.priority_threshold
        spec = msgspec.structs.replace(
            spec, victims=msgspec.structs.replace(spec.victims, priority_threshold=threshold)
        )
    if found := [
        Problem(f"spec.constraints.expectedDomains[{index}]", REQUEST_NEEDS_PRIORITY_CLASS)
        for index, each in enumerate(spec.constraints.expected_domains)
        if each.provision == "Request" and each.priority_class_name is None
    ]:
        problems += found
        spec = msgspec.structs.replace(spec, constraints=msgspec.structs.replace(spec.constraints, expected_domains=()))
    if found := [
        each for index, one in enumerate(spec.windows) for each in _window_problems(one, f"spec.windows[{index}]")
    ]:
        problems += found
        spec = msgspec.structs.replace(spec, windows=defaults.windows)
    return spec, tuple(problems)


def _selector_problems(selector: LabelSelector, path: str) -> Iterator[Problem]:
    for key, value in selector.match_labels.items():
        yield from _key_problems(key, f"{path}.matchLabels")
        yield from _value_problems(value, f"{path}.matchLabels.{key}")
    for index, requirement in enumerate(selector.match_expressions):
        at = f"{path}.matchExpressions[{index}]"
        yield from _key_problems(requirement.key, f"{at}.key")
        needs_values = requirement.operator in {"In", "NotIn"}
        if needs_values and not requirement.values:
            yield Problem(f"{at}.values", f"the operator {requirement.operator} needs at least one value")
        if not needs_values and requirement.values:
            yield Problem(f"{at}.values", f"the operator {requirement.operator} takes no values; leave them out")
        for position, value in enumerate(requirement.values):
            yield from _value_problems(value, f"{at}.values[{position}]")


def _key_problems(key: str, path: str) -> Iterator[Problem]:
    prefix, _, _ = key.rpartition("/")
    if len(prefix) > MAX_LABEL_PREFIX_LENGTH or not re.fullmatch(LABEL_KEY_PATTERN, key):
        yield Problem(path, f"must be a label key, such as app.kubernetes.io/name, not {shown(key)}")


def _value_problems(value: str, path: str) -> Iterator[Problem]:
    if len(value) > MAX_LABEL_VALUE_LENGTH or not re.fullmatch(LABEL_VALUE_PATTERN, value):
        yield Problem(
            path, f"must be a label value: at most 63 letters, digits, dashes, underscores and dots, not {shown(value)}"
        )


def _window_problems(window: Window, path: str) -> Iterator[Problem]:
    zone = window.time_zone
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # OSError: the name is a directory of the time zone database, such as "America".
        close = suggestion(zone, available_timezones())
        yield Problem(f"{path}.timeZone", f"there is no time zone {shown(zone)}: use an IANA name or UTC{close}")
    reason = _schedule_problem(window.schedule)
    if reason is not None:
        yield Problem(f"{path}.schedule", f"{reason}, in {shown(window.schedule)}")


def _schedule_problem(schedule: str) -> str | None:
    parts = schedule.split()
    if len(parts) != _CRON_FIELDS:
        return f"must have five fields (minute, hour, day of month, month, day of week), not {len(parts)}"
    try:
        next(CronSim(schedule, _SOME_MOMENT))
    except StopIteration:
        return "this never happens"
    except CronSimError as error:
        # cronsim rejects 30 February with the same message as day 32. Try every month to distinguish the two.
        any_month = [*parts[:_MONTH], "*", *parts[_MONTH + 1 :]]
        if _is_cron(" ".join(any_month)) and _is_cron(" ".join(["*"] * _MONTH + [parts[_MONTH], "*"])):
            return "this never happens: none of its months has such a day"
        return f"{str(error).lower().replace('-', ' ')}: it is no cron expression"
    return None


def _is_cron(schedule: str) -> bool:
    try:
        CronSim(schedule, _SOME_MOMENT)
    except CronSimError:
        return False
    return True
