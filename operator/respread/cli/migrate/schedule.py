"""Converts the schedule of a CronJob to windows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from cronsim import CronSim, CronSimError

from respread.api.policy import PolicySpec, Window
from respread.api.structures import read_structure, shown
from respread.api.validation import validated
from respread.cli.migrate.place import SourcePlace
from respread.cli.migrate.reading import Reading

WINDOW: Final = "1h"
"""How long a window stays open. descheduler evicts at once, while Respread waits for each replacement."""
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ZONE: Final = re.compile(r"(?:CRON_)?TZ=(\S+)\s+")
_ANY_MOMENT: Final = datetime(2024, 1, 1, tzinfo=UTC)
_FIELDS: Final = 5
_HOURS, _DAYS, _MONTHS, _WEEKDAYS = 24, 31, 12, 7


class Times(NamedTuple):
    """When a CronJob runs."""

    windows: tuple[dict[str, Any], ...]
    """As in `spec.windows`; empty if it runs at least once in every hour."""
    runs_per_hour: int
    """In an hour in which it runs."""


def times_of(schedule: str, time_zone: str | None, place: SourcePlace, reading: Reading) -> Times | None:
    """Read the schedule of a CronJob.

    Args:
        schedule: five fields, or a word such as @daily. A time zone may come before them, as older clusters accept it.
        time_zone: None if the CronJob does not set one.
        place: of the schedule. The field timeZone is beside it.
        reading: collects errors.

    Returns:
        None for an `@every …`, which is not a time of day, and for an invalid schedule, which is an error.
    """
    if given := _ZONE.match(schedule):
        time_zone, schedule = given.group(1), schedule[given.end() :]
    schedule = _DESCRIPTORS.get(schedule, schedule).replace("?", "*")
    if schedule.startswith("@every "):
        return None
    fields = schedule.split()
    try:
        cron = CronSim(" ".join(fields[:_FIELDS]), _ANY_MOMENT)
    except CronSimError as error:
        reading.mistake(
            place, f"must be a cron expression of five fields, such as 0 2 * * *, not {shown(schedule)}: {error}"
        )
        return None
    if len(fields) > _FIELDS:
        reading.mistake(place, f"must be a cron expression of five fields, such as 0 2 * * *, not {shown(schedule)}")
        return None
    every_hour = (
        len(cron.hours) == _HOURS
        and len(cron.days) == _DAYS
        and len(cron.months) == _MONTHS
        and {*range(_WEEKDAYS)} <= {*cron.weekdays}
    )
    if every_hour:
        return Times((), len(cron.minutes))
    window = {"schedule": " ".join([str(min(cron.minutes)), *fields[1:]]), "duration": WINDOW}
    if time_zone:
        window["timeZone"] = time_zone
    read, problems = read_structure(Window, window, place.path)
    if read:
        problems = [*problems, *validated(PolicySpec(windows=(read,)))[1]]
    for problem in problems:
        beside = problem.field.endswith(".timeZone") and not given
        reading.mistake(place.beside("timeZone") if beside else place, problem.message)
    return Times((window,), len(cron.minutes))
