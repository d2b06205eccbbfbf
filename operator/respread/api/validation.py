"""Checks of a policy that go beyond the form of single fields.

The CRD's CEL rules enforce some of these, and they are repeated here for files that the API server has not seen. CEL
can't check time zones and cron schedules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from respread.api.fields import (
    LABEL_KEY_PATTERN,
    LABEL_VALUE_PATTERN,
    MAX_LABEL_PREFIX_LENGTH,
    MAX_LABEL_VALUE_LENGTH,
    Problem,
)
from respread.api.label_selector import LabelSelector
from respread.api.policy import (
    REQUEST_NEEDS_PRIORITY_CLASS,
    ClusterPolicySpec,
    ExpectedDomains,
    PolicySpec,
    PriorityThreshold,
    Window,
)
from respread.api.structures import shown, suggestion

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
    if found := list(_threshold_problems(spec.victims.priority_threshold, "spec.victims.priorityThreshold")):
        problems += found
        threshold = defaults.victims.priority_threshold
        spec = msgspec.structs.replace(
            spec, victims=msgspec.structs.replace(spec.victims, priority_threshold=threshold)
        )
    if found := list(_expected_domains_problems(spec.constraints.expected_domains)):
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


def _threshold_problems(threshold: PriorityThreshold, path: str) -> Iterator[Problem]:
    if (threshold.name is None) == (threshold.value is None):
        yield Problem(path, "set exactly one of name and value")


def _expected_domains_problems(expected: Iterable[ExpectedDomains]) -> Iterator[Problem]:
    for index, each in enumerate(expected):
        if each.provision == "Request" and each.priority_class_name is None:
            yield Problem(f"spec.constraints.expectedDomains[{index}]", REQUEST_NEEDS_PRIORITY_CLASS)


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
