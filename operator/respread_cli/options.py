"""Options that several commands have, and the declaration of options."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from respread.cluster.selectors import Selector, SelectorError
from respread.program.command_line import connection_options, files, namespaced_policies_option, scheduler_option
from respread_cli import live_values
from respread_cli.read.cluster_view import ClusterOptions, ConnectionOptions
from respread_cli.render.formats import FORMATS, JSONPATH, JsonPathTemplate, OutputOptions, TemplateError

if TYPE_CHECKING:
    from respread.scheduling.configuration import SchedulerConfiguration

R = TypeVar("R")


class _Output(click.ParamType[tuple[str, Any]]):
    """One of `FORMATS`, or `jsonpath=TEMPLATE`. Its value is a format and perhaps a template."""

    name = "format"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - click's signature
        return f"[{'|'.join(FORMATS)}|{JSONPATH}=TEMPLATE]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value in FORMATS:
            return value, None
        chosen, equals, text = value.partition("=")
        if chosen != JSONPATH:
            allowed = ", ".join(map(repr, FORMATS))
            self.fail(f"{value!r} is not one of {allowed} and '{JSONPATH}=TEMPLATE'.", param, ctx)
        if not equals or not text:
            self.fail("a template is missing, such as jsonpath='{.violated}'.", param, ctx)
        try:
            return chosen, JsonPathTemplate(text)
        except TemplateError as error:
            self.fail(f"the template {text!r} can't be read: {error}.", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        return [CompletionItem(each) for each in (*FORMATS, f"{JSONPATH}=") if each.startswith(incomplete)]


def _selector(value: str) -> Selector:
    """Read a label selector as kubectl takes it."""
    from respread_cli.report.target import parse_selector  # noqa: PLC0415 - rarely needed

    try:
        return parse_selector(value)
    except SelectorError as error:
        raise click.BadParameter(f"{error}.") from error


def _timeout(value: str) -> float | None:
    """Read a Go duration or a number of seconds, as kubectl takes them. The result is in seconds, None for 0."""
    from respread.api.fields import parse_duration  # noqa: PLC0415 - rarely needed

    try:
        seconds = float(value) if value.isdecimal() else parse_duration(value).total_seconds()
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a duration such as 30s, 2m or 1h.") from None
    if seconds < 0:
        raise click.BadParameter(f"{value!r} is below 0.")
    return seconds or None


def client_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `connection`, the ConnectionOptions."""

    @connection_options
    @click.option("--as", "as_user", metavar="USER", help="The user to impersonate.")
    @click.option("--as-group", "as_groups", metavar="GROUP", multiple=True, help="A group to impersonate.")
    @click.option(
        "--request-timeout",
        type=_timeout,
        metavar="DURATION",
        help="How long to wait for each answer of the API server: 5s, 2m.  [default: 10 s to connect, then 60 s]",
    )
    @wraps(command)
    def with_connection(
        *args: Any,
        kubeconfig: str | None,
        context: str | None,
        as_user: str | None,
        as_groups: tuple[str, ...],
        request_timeout: float | None,
        **options: Any,
    ) -> R:
        chosen = ConnectionOptions(kubeconfig, context, as_user, as_groups, request_timeout)
        return command(*args, connection=chosen, **options)

    return with_connection


def cluster_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `cluster`, the ClusterOptions."""

    @client_options
    @click.option(
        "--snapshot",
        metavar="FILE",
        shell_complete=files,
        help="Look at what `respread snapshot` or `kubectl get … -o json` wrote instead of at a cluster; - is "
        "standard input.",
    )
    @wraps(command)
    def with_cluster(*args: Any, connection: ConnectionOptions, snapshot: str | None, **options: Any) -> R:
        chosen = ClusterOptions(**msgspec.structs.asdict(connection), snapshot=snapshot)
        return command(*args, cluster=_chosen(chosen), **options)

    return with_cluster


def _chosen(options: ClusterOptions) -> ClusterOptions:
    """Choose between a snapshot and a cluster if both are set: the command line has priority over variables."""
    if options.snapshot is None or (options.kubeconfig is None and options.context is None):
        return options
    source = click.get_current_context().get_parameter_source
    typed = [
        name for name in ("snapshot", "kubeconfig", "context") if source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if typed == ["snapshot"]:
        return ClusterOptions(snapshot=options.snapshot)
    if typed and "snapshot" not in typed:
        return msgspec.structs.replace(options, snapshot=None)
    given = "--context" if options.kubeconfig is None else "--kubeconfig"
    raise click.UsageError(f"--snapshot is looked at instead of a cluster: leave out {given}.")


def output_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `output`, the OutputOptions."""

    @click.option(
        "-o",
        "--output",
        type=_Output(),
        default="table",
        show_default=True,
        help="wide shows more columns; docs/cli.md describes the fields of json, yaml and jsonpath.",
    )
    @click.option("-w", "--watch", is_flag=True, help="Print the result again whenever it changes, until Ctrl-C.")
    @click.option("--exit-code", is_flag=True, help="Exit with 1 if a constraint that is shown is violated.")
    @click.option("--no-color", is_flag=True, help="Print without colors, as with the variable NO_COLOR.")
    @wraps(command)
    def with_output(
        *args: Any,
        output: tuple[str, JsonPathTemplate | None],
        watch: bool,
        exit_code: bool,
        no_color: bool,
        **options: Any,
    ) -> R:
        chosen, template = output
        if watch and (exit_code or options["cluster"].snapshot is not None):
            raise click.UsageError("--watch looks at a cluster until Ctrl-C: leave out --exit-code and --snapshot.")
        if watch and chosen == "html":
            raise click.UsageError("-o html is one file: leave out --watch. `respread ui` is the page that follows.")
        if watch and "planning" in options and "-" in options["planning"].filenames:
            raise click.UsageError("--watch reads policies again each time: name a file instead of -f -.")
        return command(*args, output=OutputOptions(chosen, no_color, template, exit_code, watch), **options)

    return with_output


def namespace_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `namespace`, None for all."""

    @click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        shell_complete=live_values.namespaces,
        help="Only this namespace.  [default: all of them]",
    )
    @click.option(
        "-A", "--all-namespaces", is_flag=True, help="All namespaces, even where RESPREAD_NAMESPACE names one."
    )
    @wraps(command)
    def with_namespace(*args: Any, namespace: str | None, all_namespaces: bool, **options: Any) -> R:
        return command(*args, namespace=None if all_namespaces else namespace or None, **options)

    return with_namespace


def selector_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add `selector`, the Selector of pods; None for all."""
    decorated: Callable[..., R] = click.option(
        "-l",
        "--selector",
        metavar="SELECTOR",
        type=_selector,
        help="Only results for pods with these labels: app=web, 'tier in (a,b)', '!canary'.",
    )(command)
    return decorated


def policy_files_option(*, help: str) -> Callable[[Callable[..., R]], Callable[..., R]]:  # noqa: A002  # click's own name
    """Return a decorator that adds `filenames`, files with policies."""
    return click.option("-f", "--filename", "filenames", metavar="FILE", shell_complete=files, multiple=True, help=help)


def planning_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `namespace`, `planning`, `cluster` and `output`: everything that a plan and its output depend on."""
    return namespace_options(planning_inputs(output_options(command)))


def planning_inputs(command: Callable[..., R]) -> Callable[..., R]:
    """Add `planning` and `cluster`: everything that a plan depends on."""

    @policy_files_option(
        help="Plan for the policies in this file instead of those in the cluster; - is standard input."
    )
    @namespaced_policies_option(help="As configured for the operator.")
    @scheduler_option
    @cluster_options
    @wraps(command)
    def with_planning(
        *args: Any,
        filenames: tuple[str, ...],
        namespaced_policies: str,
        scheduler_configuration: SchedulerConfiguration,
        **options: Any,
    ) -> R:
        from respread_cli.report.planned import PlanningOptions  # noqa: PLC0415 - other commands make no plan

        planning = PlanningOptions(filenames, namespaced_policies == "honor", scheduler_configuration)
        return command(*args, planning=planning, **options)

    return with_planning
