"""Converts the arguments of RemovePodsViolatingTopologySpreadConstraint, except its selectors."""

from __future__ import annotations

from collections.abc import Iterator

from respread.cli.migrate.descheduler import SpreadArgs
from respread.cli.migrate.lines import Line, Remark, Setting
from respread.cli.migrate.reading import Sourced


def lines_of_spread(spread: Sourced[SpreadArgs]) -> Iterator[Line]:
    """Yield the result for each argument that is set."""
    args, places = spread
    kinds = list(dict.fromkeys(args.constraints or ("DoNotSchedule",)))
    if args.include_soft_constraints and "ScheduleAnyway" not in kinds:
        kinds.append("ScheduleAnyway")
    given = tuple(places[field] for field in ("constraints", "include_soft_constraints") if field in places)
    if given:
        yield Setting("constraints.whenUnsatisfiable", kinds, "", given)
    if args.topology_balance_node_fit is not None:
        yield Remark(
            (places["topology_balance_node_fit"],),
            "Respread only evicts where it can prove that a replacement fits into a better domain"
            + ("." if args.topology_balance_node_fit else "; that can't be turned off."),
        )
