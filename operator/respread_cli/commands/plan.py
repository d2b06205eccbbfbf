"""`respread plan`: the evictions that would restore the spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import click
import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from respread.api.reasons import Reason, number_of
from respread.cluster.selectors import Selector
from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example
from respread_cli import live_values
from respread_cli.options import planning_options, selector_option
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.formats import OutputOptions
from respread_cli.render.groups import (
    counts_shown,
    mark,
    move_path,
    of_pending,
    of_unworkable,
    pending_table,
    style_of,
    workloads,
)
from respread_cli.render.output import Shown
from respread_cli.render.tables import FAINT, OVER, SOFT, WITHIN, ConsoleView, GiveWay, fitted_table, keeps_whole
from respread_cli.render.watching import show_results
from respread_cli.report.plan_report import (
    BlockedReport,
    ConstraintDifference,
    ConstraintState,
    HelpedConstraint,
    MoveReport,
    PlanDifference,
    PlannedGroup,
    PlanReport,
    plan_difference,
    plan_report,
    read_plan,
)
from respread_cli.report.planned import PlanningOptions, pace_in_words, plan_cluster_of
from respread_cli.report.skew_report import short_topology_key
from respread_cli.report.target import check_namespace, find_target, one_target

EXAMPLES: Final = (
    Example("What the operator would evict now", "plan"),
    Example("Only the moves of one workload", "plan deploy/web -n shop"),
    Example("What a policy would do before it is applied", "plan -f policy.yaml"),
    Example("The pods that would be evicted, in their order", "plan -n shop -o name"),
    Example("For a comment on a pull request", "plan -f policy.yaml -o markdown"),
    Example("What a change of policies changes", "plan -f policy.yaml --diff before.json"),
)
_BOTH: Final = 2
_SKEW: Final = "respread skew --problems"
_COPIED: Final = frozenset({"NAMESPACE", "POD", "NODE"})
"""The columns with names that users copy."""
_GIVE_WAY: Final[GiveWay] = {
    "WHY": (40, 13),
    "FROM -> TO": (30, 14),
    "POLICY": (14, 8),
    "PODS PER DOMAIN": (40, 16),
    "NAMESPACE": (14, 9),
    "NODE": (14, 8),
    "WORKLOAD": (22, 12),
    "POD": (40, 14),
}


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.argument("target", metavar="[TARGET]", nargs=-1, callback=one_target, shell_complete=live_values.targets)
@selector_option
@click.option(
    "--diff",
    "older",
    metavar="OLD.json",
    help="Show what differs from the plan that `respread plan -o json` wrote to this file.",
)
@planning_options
@click.pass_context
def plan(
    ctx: click.Context,
    *,
    target: str | None,
    selector: Selector | None,
    older: str | None,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show the evictions that would restore the spread.

    The output lists the evictions in their order, where each replacement may land, and what stays violated and why. The
    operator would do the same now, except that the command ignores modes, windows, quiet periods and back-off. Nothing
    is evicted. If there is no policy, the plan is made for a policy with an empty spec.

    The plan is always made for the whole cluster. TARGET, -l and -n select what is shown of it. TARGET is a workload
    such as deploy/web, a pod such as pod/web-7c9-x2, a policy such as crbp/default, or just a name.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that the policies restore is violated now.
    """
    before = None if older is None else read_plan(older)

    def look() -> PlanReport:
        planned = plan_cluster_of(cluster, planning, namespace)
        check_namespace(namespace, planned.view.snapshot)
        wanted = None
        if target is not None:
            wanted = find_target(target, planned.view.snapshot, planned.setting.policies, namespace)
        return plan_report(planned, namespace=namespace, selector=selector, target=wanted)

    view = partial(PlanView, wide=output.wide, with_namespace=namespace is None)

    def shown(report: PlanReport) -> Shown:
        if before is None:
            return Shown(report, lambda console: view(console).render(report))
        difference = plan_difference(before, report)
        return Shown(difference, lambda _: _difference_rendered(difference))

    report = show_results(look, output, shown)
    ctx.exit(output.code(violated=report.violated > 0))


class PlanView(ConsoleView):
    """Shows plans on one console."""

    def render(self, report: PlanReport) -> Iterator[RenderableType]:
        """Return the parts of the output, one below the other."""
        if report.moves:
            yield _heading("Evictions, in this order")
            rows = [self._move(number, move) for number, move in enumerate(report.moves, start=1)]
            if keeps_whole(rows, _GIVE_WAY, self._width, _COPIED):
                yield self._table(rows)
            else:
                yield from map(_in_lines, rows)
            for number, move in enumerate(report.moves, start=1):
                if move.waits_for is not None and not any(each.wave == 1 for each in report.moves):
                    yield Padding(Text(f"{number} waits: {move.waits_for}.", style=SOFT), (0, 0, 0, 2))
            yield Text()
            yield _heading("What they do")
            yield self._table([self._group(each) for each in report.groups if each.counts_after != each.group.counts])
            yield Text()
        missing = [each for each in report.blocked if each.reason is Reason.DOMAIN_HAS_NO_NODE]
        for heading, blocked in (
            ("What stays violated, and why", [each for each in report.blocked if each not in missing]),
            ("What would be violated if every expected domain had a node", missing),
        ):
            if blocked:
                yield _heading(heading)
                yield from map(self._blocked, blocked)
                yield Text()
        if report.pending:
            yield _heading("Pods without a node, which no eviction helps")
            yield from pending_table(
                report.pending, width=self._width, ascii_only=self._ascii, with_namespace=self._with_namespace
            )
        yield summary(report)

    def _move(self, number: int, move: MoveReport) -> dict[str, Text]:
        return {
            "#": Text(str(number)),
            "WAVE": Text(str(move.wave)),
            **({"NAMESPACE": Text(move.namespace)} if self._with_namespace else {}),
            "POD": Text(move.pod),
            "NODE": Text(move.node),
            "FROM -> TO": _lines(move_path(move, each, ascii_only=self._ascii) for each in move.constraints),
            "WHY": _lines(_why(each) for each in move.constraints),
            **({"POLICY": Text(move.policy)} if self._wide else {}),
            **({"NODES": Text(str(move.feasible_nodes))} if self._wide else {}),
        }

    def _group(self, planned: PlannedGroup) -> dict[str, Text]:
        group, arrow = planned.group, "->" if self._ascii else "→"
        after_all = msgspec.structs.replace(group, violated=planned.violated_after, skew=planned.skew_after)
        holds = WITHIN if not planned.violated_after else OVER
        before, after = counts_shown(group.counts), counts_shown(planned.counts_after)
        return {
            "": Text(mark(after_all, ascii_only=self._ascii), style=holds),
            **({"NAMESPACE": Text(group.namespace)} if self._with_namespace else {}),
            "WORKLOAD": Text(workloads(group)),
            "KEY": Text(group.topology_key if self._wide else short_topology_key(group.topology_key)),
            "SKEW": Text(f"{group.skew} {arrow} ").append(str(planned.skew_after), style=holds),
            "MAX": Text(str(group.max_skew)),
            "PODS PER DOMAIN": Text(f"{before} {arrow} {after}"),
        }

    def _blocked(self, blocked: BlockedReport) -> RenderableType:
        group = blocked.group
        line = Text()
        line.append(mark(group, ascii_only=self._ascii), style=style_of(group))
        line.append(f" {group.namespace} {workloads(group)}" if self._with_namespace else f" {workloads(group)}")
        key = group.topology_key if self._wide else short_topology_key(group.topology_key)
        line.append(f" {key}: skew {group.skew}, maxSkew {group.max_skew}; pods {counts_shown(group.counts)}\n")
        line.append(f"{blocked.reason}: ", style="bold").append(f"{blocked.message}.")
        return Padding(line, (0, 0, 0, 2))

    def _table(self, rows: Sequence[dict[str, Text]]) -> Table:
        return fitted_table(rows, _GIVE_WAY, self._width, ascii_only=self._ascii, to_the_right={"#", "NODES"})


def _in_lines(row: Mapping[str, Text]) -> RenderableType:
    """Return a move in lines of its own, whose names stay whole: a terminal is too narrow for its table.

    A terminal breaks a longer line itself, and copies it in one piece.
    """
    namespace = f", namespace {row['NAMESPACE']}" if "NAMESPACE" in row else ""
    text = Text(f"{row['#']}  wave {row['WAVE']}{namespace}\n   ", no_wrap=True, overflow="ignore")
    text.append(str(row["POD"]), style="bold")
    text.append(f"\n   on {row['NODE']}")
    for path, why in zip(row["FROM -> TO"].split("\n"), row["WHY"].split("\n"), strict=True):
        text.append(f"\n   {path}  {why}")
    return Group(text)  # Alone, a console would wrap it.


def summary(report: PlanReport) -> Text:
    """Return a summary of the plan in some sentences."""
    text = Text()
    if not report.violated:
        _append_no_violation(text, report)
    else:
        staying = sum(each.group.violated and each.violated_after for each in report.groups)
        restored = report.violated - staying
        evictions = number_of(report.evictions, "eviction")
        constraints = number_of(report.violated, "violated constraint")
        planned = f"{evictions} to restore {restored:,} of" if report.evictions else "No eviction is planned for"
        text.append(f"{planned} {constraints}", style=OVER if staying else SOFT)
        if report.evictions and report.lower_bound is not None:
            fewest = report.evictions <= report.lower_bound
            text.append(
                "; no plan of safe evictions needs fewer." if fewest else f"; at least {report.lower_bound} are needed."
            )
        else:
            text.append(".")
        if report.evictions:
            text.append(f"\nWithin limits they take {pace_in_words(report.pace)}.", style=FAINT)
    if report.violated_unselected:
        more = report.violated_unselected
        text.append(
            f"\n{more:,} more {'constraint is' if more == 1 else 'constraints are'} violated that no policy restores "
            "(see respread skew).",
            style=FAINT,
        )
    if report.violated and report.unsatisfiable + report.ineffective:
        text.append("\n").append_text(of_unworkable(report.unsatisfiable, report.ineffective, _SKEW))
    return text.append_text(of_pending(report.pending))


def _append_no_violation(text: Text, report: PlanReport) -> None:
    if report.unsatisfiable + report.ineffective:
        text.append("No constraint that the policies restore is violated, so there is nothing to evict. ")
        text.append_text(of_unworkable(report.unsatisfiable, report.ineffective, _SKEW))
    else:
        todo = "nothing to evict" if report.pending else "nothing to do"
        text.append(f"{_all_hold(report.selected)}: {todo}.", style=WITHIN)


def _all_hold(selected: int) -> str:
    if not selected:
        return "There is no constraint that the policies restore"
    if selected == 1:
        return "The constraint that the policies restore holds"
    return f"{'Both' if selected == _BOTH else f'All {selected:,}'} constraints that the policies restore hold"


def _heading(words: str) -> Text:
    return Text(f"{words}:", style="bold")


def _why(constraint: HelpedConstraint) -> str:
    key = short_topology_key(constraint.topology_key)
    return f"{key} skew {constraint.skew}/{constraint.max_skew}"


def _lines(lines: Iterator[str]) -> Text:
    return Text("\n".join(lines))


def _difference_rendered(difference: PlanDifference) -> Iterator[RenderableType]:
    """Yield what differs between plans, as sentences and tables. Columns are as wide as what they hold."""
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
