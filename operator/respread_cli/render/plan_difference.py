"""What differs between two plans, as values and as tables: `respread plan --diff`.

docs/cli.md describes every field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from respread.api.policy import WhenUnsatisfiable
from respread.api.reasons import Reason
from respread.api.words import number_of
from respread.program.command_line import CommandError
from respread_cli.report.plan_report import MoveReport, PlanReport
from respread_cli.report.skew_report import API_VERSION, GroupReport, WorkloadReference, short_topology_key


class ConstraintState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A constraint in one of the plans."""

    violated: bool
    skew: int
    max_skew: int
    evictions: int
    """How many moves of the plan help it."""
    skew_after: int
    reason: Reason | None
    """Why it stays violated; null if it does not."""


class ConstraintDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A constraint that the plans treat differently."""

    namespace: str
    workloads: tuple[WorkloadReference, ...]
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    selector: str
    before: ConstraintState | None
    """Null if the old plan says nothing about it: it held, no policy restored it, or it did not exist."""
    after: ConstraintState | None
    """Null if the new plan says nothing about it."""


class PlanDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What differs between two plans."""

    api_version: str = API_VERSION
    kind: Literal["PlanDifference"] = "PlanDifference"
    before: PlanReport
    after: PlanReport
    notes: tuple[str, ...] = ()
    added_policies: tuple[str, ...]
    removed_policies: tuple[str, ...]
    constraints: tuple[ConstraintDifference, ...]
    added_moves: tuple[MoveReport, ...]
    """Of pods that the old plan does not evict."""
    removed_moves: tuple[MoveReport, ...]
    """Of pods that the new plan does not evict."""

    def names(self) -> Iterator[str]:
        """Yield the pods that only the new plan evicts."""
        return (f"pod/{move.pod}" for move in self.added_moves)


class _Identity(NamedTuple):
    namespace: str
    workloads: tuple[WorkloadReference, ...]
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    selector: str


def read_plan(file: str) -> PlanReport:
    """Return the plan that `respread plan -o json` wrote to a file.

    Raises:
        CommandError: it can't be read, or is something else.
    """
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=PlanReport)
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror or error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} is not what `respread plan -o json` writes: {error}.") from error


def plan_difference(before: PlanReport, after: PlanReport) -> PlanDifference:
    """Return what differs between two plans, constraints in the order of the new one."""
    old, new = dict(_constraints(before)), dict(_constraints(after))
    evicted_before = {(move.namespace, move.pod) for move in before.moves}
    evicted = {(move.namespace, move.pod) for move in after.moves}
    old_policies, new_policies = ({policy.name for policy in each.policies} for each in (before, after))
    return PlanDifference(
        before=before,
        after=after,
        notes=after.notes,
        added_policies=tuple(sorted(new_policies - old_policies)),
        removed_policies=tuple(sorted(old_policies - new_policies)),
        constraints=tuple(
            ConstraintDifference(**key._asdict(), before=old.get(key), after=new.get(key))
            for key in dict.fromkeys((*new, *old))
            if old.get(key) != new.get(key)
        ),
        added_moves=tuple(move for move in after.moves if (move.namespace, move.pod) not in evicted_before),
        removed_moves=tuple(move for move in before.moves if (move.namespace, move.pod) not in evicted),
    )


def _constraints(plan: PlanReport) -> Iterator[tuple[_Identity, ConstraintState]]:
    reasons = {_identity(each.group): each.reason for each in plan.blocked}
    evictions = Counter(
        (move.namespace, each.topology_key, each.selector) for move in plan.moves for each in move.constraints
    )
    for planned in plan.groups:
        group = planned.group
        state = ConstraintState(
            violated=group.violated,
            skew=group.skew,
            max_skew=group.max_skew,
            evictions=evictions[group.namespace, group.topology_key, group.selector],
            skew_after=planned.skew_after,
            reason=reasons.get(_identity(group)),
        )
        yield _identity(group), state


def _identity(group: GroupReport) -> _Identity:
    return _Identity(group.namespace, group.workloads, group.topology_key, group.when_unsatisfiable, group.selector)


def render_difference(difference: PlanDifference) -> Iterator[RenderableType]:
    """Yield the difference as sentences and tables."""
    before, after = difference.before, difference.after
    policies = [(name, "new") for name in difference.added_policies]
    policies += [(name, "gone") for name in difference.removed_policies]
    moves = [(move, "new") for move in difference.added_moves] + [(move, "gone") for move in difference.removed_moves]
    if not (policies or moves or difference.constraints):
        yield Text("The plans are the same.")
        return
    yield Text(f"Violated constraints: {before.violated} before, {after.violated} now.")
    yield Text(f"Evictions: {before.evictions} before, {after.evictions} now.")
    if policies:
        yield Text()
        yield _table(("POLICY", ""), policies)
    if difference.constraints:
        yield Text()
        headings = ("NAMESPACE", "WORKLOAD", "KEY", "BEFORE", "NOW")
        yield _table(headings, map(_constraint_cells, difference.constraints))
    if moves:
        yield Text()
        cells = ((move.namespace, move.pod, move.node, sign) for move, sign in moves)
        yield _table(("NAMESPACE", "EVICTED POD", "NODE", ""), cells)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _constraint_cells(each: ConstraintDifference) -> tuple[str, ...]:
    workloads = ", ".join(map(str, each.workloads)) or each.selector
    return each.namespace, workloads, short_topology_key(each.topology_key), _said(each.before), _said(each.after)


def _said(state: ConstraintState | None) -> str:
    if state is None:
        return "nothing to do"
    blocked = f", blocked by {state.reason}" if state.reason is not None else ""
    return f"skew {state.skew} (maxSkew {state.max_skew}), {number_of(state.evictions, 'eviction')}{blocked}"
