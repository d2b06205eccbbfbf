"""How descheduler runs: once, by a CronJob, or as a Deployment that repeats it.

The schedule of a CronJob becomes windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Final, NamedTuple

from cronsim import CronSim, CronSimError

from respread.api.decoding import validated
from respread.api.policy import PolicySpec, Window
from respread.api.structures import read_structure, shown
from respread_cli.migrate.evictor import read_go_duration
from respread_cli.migrate.reading import Line, Reading, Remark, Setting, SourcePlace

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


def _times_of(
    schedule: str, time_zone: str | None, place: SourcePlace, reading: Reading
) -> tuple[dict[str, Any] | None, int] | None:
    """Read a CronJob's schedule, which a time zone may precede, as older clusters accept it.

    Returns its window, as in `spec.windows`, None if it runs at least once in every hour; and how often it runs in an
    hour in which it does. Returns None for an `@every …`, which is not a time of day, and for an invalid schedule,
    which is an error.
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
        return None, len(cron.minutes)
    window = {"schedule": " ".join([str(min(cron.minutes)), *fields[1:]]), "duration": WINDOW}
    if time_zone:
        window["timeZone"] = time_zone
    read, problems = read_structure(Window, window, place.path)
    if read:
        problems = [*problems, *validated(PolicySpec(windows=(read,)))[1]]
    for problem in problems:
        beside = problem.field.endswith(".timeZone") and not given
        reading.mistake(place.beside("timeZone") if beside else place, problem.message)
    return window, len(cron.minutes)


_SECONDS_PER_HOUR: Final = 3600
_DRY_RUN: Final = "dry-run"
_INTERVAL: Final = "descheduling-interval"
_OPTIONS: Final = {
    _DRY_RUN: "The policy's mode is DryRun in any case.",
    "policy-config-file": "The policy is what was read here.",
    "feature-gates": "Respread has no feature gates. It follows each eviction until its replacement is Ready.",
    "disable-metrics": "Respread serves metrics always; --listen-address of respread run says where.",
    "v": "It is --log-level of respread run.",
}
_OPTION_GROUPS: Final = (
    ("leader-elect", "Respread always elects a leader, by options of respread run: --lease-name, --lease-seconds."),
    ("otel-", "Respread writes no traces."),
    ("client-connection-", "Respread limits its requests by itself; --kubeconfig of respread run names the cluster."),
    ("kubeconfig", "It is --kubeconfig of respread run."),
    ("logging-", "It is --log-format of respread run."),
)


class CommandOption(NamedTuple):
    """An option of descheduler's command line."""

    name: str
    value: str | None
    place: SourcePlace


class DeschedulerRun(NamedTuple):
    """One way in which it runs."""

    name: str
    """Its name in comments: `CronJob kube-system/descheduler`."""
    schedule: str | None = None
    time_zone: str | None = None
    timed: tuple[SourcePlace, ...] = ()
    """Where the schedule stands, and the time zone if there is one."""
    suspended: SourcePlace | None = None
    options: tuple[CommandOption, ...] = ()
    config_maps: frozenset[tuple[str, str]] = frozenset()
    """Namespaces and names of those that it mounts."""


def _read_options(arguments: Iterable[tuple[str, SourcePlace]]) -> Iterator[CommandOption]:
    """Read `--name=value`, `--name value` and `--name`, as for Go's flags. Everything else is ignored."""
    pending: CommandOption | None = None
    for argument, place in arguments:
        if argument.startswith("-"):
            if pending:
                yield pending
            name, _, value = argument.lstrip("-").partition("=")
            pending = CommandOption(name, value if "=" in argument else None, place)
        elif pending:
            yield pending._replace(value=argument if pending.value is None else pending.value)
            pending = None
    if pending:
        yield pending


def pace_of(runs: Iterable[DeschedulerRun], reading: Reading) -> tuple[tuple[Line, ...], Fraction | None]:
    """Return what a policy gets from all runs, and how often these are in an hour that has some; None if unknown."""
    lines: list[Line] = []
    windows: list[dict[str, Any]] = []
    scheduled: list[SourcePlace] = []
    always = False
    rates: list[Fraction] = []
    for run in runs:
        if run.suspended:
            lines.append(Remark((run.suspended,), f"{run.name} does not run now: leave mode at DryRun to keep it so."))
        lines += (Remark((option.place,), _about_option(option)) for option in run.options)
        rates += _rates_of_intervals(run, reading)
        times = None if run.schedule is None else _times_of(run.schedule, run.time_zone, run.timed[0], reading)
        rates += [Fraction(times[1])] if times else []
        if times and times[0]:
            windows.append(times[0])
            scheduled += run.timed
        else:
            always = True
            lines += [Remark(run.timed, _ALWAYS)] if run.timed else []
    if windows and always:
        lines.append(Remark(tuple(scheduled), "No windows, since descheduler is run at other times as well."))
    elif windows:
        why = _WINDOWS if all("timeZone" in each for each in windows) else f"{_WINDOWS} {_NO_ZONE}"
        lines.append(Setting("windows", windows, why, tuple(scheduled)))
    return tuple(lines), sum(rates, Fraction()) if rates else None


_ALWAYS: Final = (
    "It leaves no hour out, so there are no windows. Respread acts when pods and nodes change, not every so often."
)
_WINDOWS: Final = (
    f"descheduler evicts when it is run; Respread evicts within the {WINDOW} after that, since it waits for each "
    "replacement. Make the windows as long as evictions are fine for you."
)
_NO_ZONE: Final = (
    "A CronJob without a time zone follows the clock of the kube-controller-manager; windows follow UTC unless their "
    "timeZone says otherwise."
)


def _rates_of_intervals(run: DeschedulerRun, reading: Reading) -> Iterator[Fraction]:
    """Yield how often an hour a process repeats what it does, if it does."""
    for option in run.options:
        if option.name == _INTERVAL and option.value is not None:
            interval = read_go_duration(option.value, option.place, reading)
            if interval and interval > timedelta():
                yield _SECONDS_PER_HOUR / Fraction(interval.total_seconds())


def _about_option(option: CommandOption) -> str:
    if option.name == _INTERVAL:
        return "Respread acts when pods and nodes change, not every so often."
    if option.name in _OPTIONS:
        return _OPTIONS[option.name]
    for prefix, why in _OPTION_GROUPS:
        if option.name.startswith(prefix):
            return why
    return "It is about descheduler's own process; options of respread run are in docs/cli.md."


def read_manifest(document: Mapping[str, Any], place: SourcePlace, reading: Reading) -> DeschedulerRun | None:
    """Read a CronJob, Job or Deployment; None if it does not run descheduler."""
    metadata = reading.mapping(document.get("metadata"), place.at("metadata"))
    kind, namespace = str(document.get("kind")), str(metadata.get("namespace") or "")
    at = place.at("spec")
    spec = reading.mapping(document.get("spec"), at)
    owner, owner_at = spec, at
    if kind == "CronJob":
        owner_at = at.at("jobTemplate").at("spec")
        owner = reading.mapping(_inner(spec, "jobTemplate", "spec"), owner_at)
    pod_at = owner_at.at("template").at("spec")
    pod = reading.mapping(_inner(owner, "template", "spec"), pod_at)
    containers = [
        (container, where)
        for container, where in reading.items(pod.get("containers"), pod_at.at("containers"))
        if isinstance(container, Mapping) and _is_descheduler(container)
    ]
    if not containers:
        return None
    schedule = spec.get("schedule") if kind == "CronJob" else None
    if kind == "CronJob" and not isinstance(schedule, str):
        reading.mistake(at.at("schedule"), "is required: a cron expression such as 0 2 * * *")
        schedule = None
    zone = spec.get("timeZone")
    arguments = [
        (str(argument), at_argument)
        for container, where in containers
        for field in ("command", "args")
        for argument, at_argument in reading.items(container.get(field), where.at(field))
    ]
    suspended = next(
        (at.at(name) for name, off in (("suspend", True), ("replicas", 0)) if name in spec and spec[name] == off), None
    )
    return DeschedulerRun(
        name=f"{kind} {'/'.join(filter(None, (namespace, str(metadata.get('name')))))}",
        schedule=schedule,
        time_zone=zone if isinstance(zone, str) else None,
        timed=() if schedule is None else (at.at("schedule"), *([at.at("timeZone")] if zone is not None else [])),
        suspended=suspended,
        options=tuple(_read_options(arguments)),
        config_maps=frozenset(
            (namespace, str(name))
            for volume, _ in reading.items(pod.get("volumes"), pod_at.at("volumes"))
            if (name := _inner(volume, "configMap", "name"))
        ),
    )


def _is_descheduler(container: Mapping[str, Any]) -> bool:
    return any("descheduler" in str(container.get(field)) for field in ("image", "command", "args"))


def _inner(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
