"""`respread explain`: what a plan does with a workload, a pod or a policy, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import click
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from respread.api.reasons import number_of
from respread.eviction.remaining import in_words
from respread.program.command_line import ENVIRONMENT, CommandWithExamples, Example
from respread_cli import live_values
from respread_cli.options import planning_options
from respread_cli.read.cluster_view import ClusterOptions
from respread_cli.render.formats import OutputOptions
from respread_cli.render.groups import MOST_DOMAINS_WIDE, bar, mark, move_path, style_of, style_of_state, workloads
from respread_cli.render.output import Shown
from respread_cli.render.tables import FAINT, GAP, OVER, SOFT, WITHIN, ConsoleView, cut
from respread_cli.render.watching import show_results
from respread_cli.report.explain_report import (
    CandidateReport,
    ConstraintReport,
    ExplainedPolicy,
    ExplainReport,
    explain_report,
)
from respread_cli.report.explaining import DomainReport
from respread_cli.report.planned import Planned, PlanningOptions, plan_cluster_of
from respread_cli.report.scale_downs import ScaleDownReport
from respread_cli.report.skew_report import GroupReport
from respread_cli.report.target import Target, check_namespace, find_target, one_target
from respread_cli.report.workload_view import workload_view

EXAMPLES: Final = (
    Example("Why the pods of a workload move or stay", "explain deploy/web -n shop"),
    Example("Why this pod is not evicted", "explain pod/web-868db494cd-g77vj -n shop"),
    Example("Why a policy can't restore what it selects", "explain crbp/default"),
)
MOST_PODS: Final = 20
"""Pods that are listed without `-o wide`."""
_LONGEST_BAR: Final = 16
_LONGEST_DOMAIN: Final = 44
_MOST_REPLICAS: Final = 12
_REPEATED: Final = 40
"""A longer reason is not repeated for other pods."""
_TIME: Final = re.compile(r"at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))")


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.argument(
    "target", metavar="TARGET", nargs=-1, required=True, callback=one_target, shell_complete=live_values.targets
)
@planning_options
@click.pass_context
def explain(
    ctx: click.Context,
    *,
    target: str,
    namespace: str | None,
    planning: PlanningOptions,
    cluster: ClusterOptions,
    output: OutputOptions,
) -> None:
    """Show why pods move, and why others don't.

    TARGET is a workload such as deploy/web, a pod such as pod/web-7c9-x2, a policy such as crbp/default, or just a
    name. The output shows its constraints, the domains that count and those that don't, what the plan does, why each
    pod may or may not move, and what a scale-down would leave. The plan is that of `respread plan`.

    Exit code: 0, or 2 for an error; with --exit-code, 1 if a constraint that is shown is violated.
    """

    def look() -> tuple[Planned, Target, ExplainReport]:
        planned = plan_cluster_of(cluster, planning, namespace)
        check_namespace(namespace, planned.view.snapshot)
        found = find_target(target, planned.view.snapshot, planned.setting.policies, namespace)
        return planned, found, explain_report(planned, found)

    view = partial(ExplainView, wide=output.wide, with_namespace=namespace is None)

    def shown(result: tuple[Planned, Target, ExplainReport]) -> Shown:
        return Shown(result[2], lambda console: view(console).render(result[2]), partial(workload_view, *result))

    _, _, report = show_results(look, output, shown)
    ctx.exit(output.code(violated=report.violated > 0))


class ExplainView(ConsoleView):
    """Shows explanations on one console."""

    def render(self, report: ExplainReport) -> Iterator[RenderableType]:
        """Return the parts of the output, one below the other."""
        yield Text("; ".join(report.subjects), style="bold")
        yield from _policies(report)
        for constraint in report.constraints:
            yield Text()
            yield from self._constraint(constraint, report.time)
        if not report.constraints:
            yield Text()
            none = "No topology spread constraint concerns it."
            yield Text(_others(report.others_that_hold) if report.others_that_hold else none)
        elif report.others_that_hold:
            yield Text()
            yield Text(_others(report.others_that_hold), style=FAINT)
        if report.pods:
            yield Text()
            yield from self._pods(report.pods, report.time)
        if report.scale_downs:
            yield Text()
            yield Text("Scale-downs:", style="bold")
            for each in report.scale_downs:
                yield Padding(_scale_down(each), (0, 0, 0, 2))

    def _constraint(self, constraint: ConstraintReport, now: datetime) -> Iterator[RenderableType]:
        group = constraint.group
        title = Text(mark(group, ascii_only=self._ascii), style=style_of(group))
        title.append(f" {group.topology_key}", style="bold")
        minimum = f", minDomains {group.min_domains}" if group.min_domains > 1 else ""
        title.append(f": skew {group.skew}, maxSkew {group.max_skew}{minimum}, {group.when_unsatisfiable}")
        title.append(f"; {workloads(group)} in {group.namespace}, selector {group.selector}")
        yield title
        shown = list(constraint.domains)
        if len(shown) > MOST_DOMAINS_WIDE and not self._wide:
            shown = [each for each in shown if each.too_full or each.closed][:MOST_DOMAINS_WIDE]
        if shown:
            yield Padding(self._domains(shown, group.minimum + group.max_skew), (0, 0, 0, 2))
        if more := group.domains - len(shown):
            yield Padding(Text(f"and {number_of(more, 'more domain')}", style=FAINT), (0, 0, 0, 2))
        for nodes in constraint.ineligible:
            named = ", ".join(nodes.examples) + (" …" if nodes.nodes > len(nodes.examples) else "")
            domain = nodes.domain or "no domain"
            line = f"not counted: {domain} ({named.replace('…', '...') if self._ascii else named}), which {nodes.why}"
            yield Padding(Text(line, style=FAINT), (0, 0, 0, 2))
        yield Padding(self._what_comes_of_it(constraint, now), (0, 0, 0, 2))

    def _domains(self, domains: Sequence[DomainReport], allowed: int) -> Table:
        most = max((each.pods for each in domains), default=0)
        table = Table.grid(padding=(0, GAP, 0, 0))
        for justify in ("left", "right", "left", "left"):
            table.add_column(justify=justify)
        for each in domains:
            said = Text("too full", style=OVER) if each.too_full else Text()
            if each.closed:
                said.append("; " if each.too_full else "").append(
                    f"no node accepts a replacement: {each.closed}", style=SOFT
                )
            table.add_row(
                cut(each.domain or '""', _LONGEST_DOMAIN, ascii_only=self._ascii),
                f"{each.pods:,}",
                bar(each.pods, allowed, most, _LONGEST_BAR, ascii_only=self._ascii),
                said,
            )
        return table

    def _what_comes_of_it(self, constraint: ConstraintReport, now: datetime) -> Text:
        text = Text()
        if constraint.evictions:
            arrow = "->" if self._ascii else "→"
            number = number_of(constraint.evictions, "eviction")
            text.append(f"The plan: {number}, skew {constraint.group.skew} {arrow} {constraint.skew_after}")
            text.append(", after which it holds.\n" if not constraint.violated_after else ".\n", style=WITHIN)
        elif constraint.group.findings:
            self._say_findings(text, constraint.group)
        elif not constraint.group.violated:
            text.append("It holds: nothing to do.\n" if constraint.reason is None else "It holds.\n", style=WITHIN)
        if constraint.reason is not None:
            message = with_relative_times(constraint.message or "", now)
            text.append(f"{constraint.reason}: ", style="bold").append(f"{message}.\n")
        if constraint.operator is not None and constraint.operator.reason != constraint.reason:
            time = constraint.operator.time
            at = "" if time is None else f", {relative(time, now)}"
            text.append(f"The operator says{at}: ").append(f"{constraint.operator.reason}: ", style="bold")
            text.append(f"{with_relative_times(constraint.operator.message, now)}.\n")
        if not constraint.counts_own_pods and not constraint.group.findings:
            text.append(
                "Its selector matches none of the pods that have it, so it does not keep them apart: "
                "correct labelSelector if that is not meant.\n",
                style=SOFT,
            )
        text.rstrip()
        return text

    def _say_findings(self, text: Text, group: GroupReport) -> None:
        for each in group.findings:
            text.append(f"{each.state}, {each.rule}: ", style=style_of_state(each.state, each.when))
            text.append(f"{each.message}. To cure it, {each.cure}.\n")
            if each.command is not None:
                text.append(f"{each.command}\n", style=FAINT)
            text.append(f"{each.docs}\n", style=FAINT)

    def _pods(self, pods: Sequence[CandidateReport], now: datetime) -> Iterator[RenderableType]:
        shown = pods if self._wide else pods[:MOST_PODS]
        several = len({each.namespace for each in pods}) > 1
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for heading in ("POD", "NODE"):
            table.add_column(heading, overflow="fold")
        for heading in ("TOO FULL", "FATE"):
            table.add_column(heading, no_wrap=True)
        table.add_column("WHY", ratio=1, overflow="fold")
        said: dict[str, str] = {}
        for each in shown:
            why = with_relative_times(self._why(each), now)
            first = said.setdefault(why, each.pod)
            if first != each.pod and len(why) > _REPEATED:
                why = f"{each.reason}: as {first}" if each.reason is not None else f"as {first}"
            table.add_row(
                f"{each.namespace}/{each.pod}" if several else each.pod,
                each.node or "",
                "\n".join(each.too_full_domains),
                Text(each.fate, style={"Moves": SOFT, "Held": OVER}.get(each.fate, "")),
                why,
            )
        yield table
        if more := len(pods) - len(shown):
            yield Text(f"and {number_of(more, 'more pod')} (see -o wide)", style=FAINT)

    def _why(self, pod: CandidateReport) -> str:
        if pod.move is None:
            if pod.fate == "MayMove" and pod.reason is not None:
                return f"{pod.reason}, as said above"
            return f"{pod.reason}: {pod.message}" if pod.reason is not None else pod.message
        paths = ", ".join(move_path(pod.move, each, ascii_only=self._ascii) for each in pod.move.constraints)
        return f"wave {pod.move.wave}, {paths}: {pod.message}"


def _policies(report: ExplainReport) -> Iterator[Text]:
    if report.default_policy:
        yield Text("The cluster has no policy. This is what a policy with an empty spec would do.")
    elif not report.policies:
        yield Text("No policy selects the pods: nothing restores their spread.")
    else:
        yield from map(_policy, report.policies)


def _policy(policy: ExplainedPolicy) -> Text:
    text = Text(f"Policy {policy.name}, mode {policy.mode}")
    if policy.wrong:
        text.append(f": invalid, and evicts nothing until it is fixed: {'; '.join(policy.wrong)}.", style=OVER)
    else:
        text.append(": plans, and evicts nothing." if policy.mode == "DryRun" else ": carries the plan out.")
    if policy.conditions:
        said = ", ".join(f"{each.type} {each.status} ({each.reason})" for each in policy.conditions)
        text.append(f" The operator says: {said}.")
    return text


def _others(number: int) -> str:
    return "1 more constraint holds." if number == 1 else f"{number:,} more constraints hold."


def _scale_down(report: ScaleDownReport) -> Text:
    text = Text(f"{report.workload} in {report.namespace}: ")
    text.append("protected. " if report.protected else "not protected. ", style=WITHIN if report.protected else SOFT)
    text.append(report.message)
    violating = report.violating_replicas
    if violating is None or report.replicas <= 1:
        return text
    likely = "" if report.certain else "most likely "
    if not violating:
        return text.append(f" A scale-down to any number would {likely}keep every constraint.")
    listed = ", ".join(map(str, violating[:_MOST_REPLICAS])) + (", ..." if len(violating) > _MOST_REPLICAS else "")
    return text.append(f" A scale-down to {listed} would {likely}leave a constraint violated.")


def with_relative_times(text: str, now: datetime) -> str:
    """Return a text with each time after "at", in RFC 3339, replaced: `in 34 s`, `2 min ago`."""
    return _TIME.sub(lambda found: relative(datetime.fromisoformat(found[1]), now), text)


def relative(time: datetime, now: datetime) -> str:
    """Return how long it is until a time, or since then. Both have a time zone."""
    seconds = round((time - now).total_seconds())
    return f"in {in_words(seconds)}" if seconds > 0 else f"{in_words(-seconds)} ago"
