"""Options that several commands have, and the declaration of options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final, Literal, TypeVar

import click
import msgspec

ENVIRONMENT: Final[dict[str, Any]] = {"auto_envvar_prefix": "RESPREAD", "max_content_width": 100}
"""The `context_settings` of every command that reads a cluster: the same variable for an option of all commands."""

OutputFormat = Literal["table", "wide", "json", "yaml"]

R = TypeVar("R")

option = partial(click.option, show_envvar=True)
"""`click.option` that shows its environment variable in the help."""


class ClusterOptions(msgspec.Struct, frozen=True):
    """Which cluster to read: a live one, unless a snapshot is given."""

    kubeconfig: str | None = None
    """A file, or several joined as in `KUBECONFIG`."""
    context: str | None = None
    snapshot: str | None = None
    """A file, or `-` for standard input."""


class OutputOptions(msgspec.Struct, frozen=True):
    """How to show the result."""

    format: OutputFormat = "table"
    no_color: bool = False

    @property
    def wide(self) -> bool:
        """Whether to show everything."""
        return self.format == "wide"


def connection_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options that select the cluster, as `kubeconfig` and `context`."""
    kubeconfig = option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig to use, or several as in KUBECONFIG. Default: $KUBECONFIG, else the pod's ServiceAccount "
        "where there is one, else ~/.kube/config.",
    )
    context = option("--context", metavar="NAME", help="The kubeconfig's context to use.  [default: the current one]")
    return kubeconfig(context(command))


def cluster_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `cluster`, the ClusterOptions."""

    @connection_options
    @option(
        "--snapshot",
        metavar="FILE",
        help="Look at what `respread snapshot` or `kubectl get … -o json` wrote instead of at a cluster; - is "
        "standard input.",
    )
    @wraps(command)
    def with_cluster(
        *args: Any, kubeconfig: str | None, context: str | None, snapshot: str | None, **options: Any
    ) -> R:
        return command(*args, cluster=_chosen(ClusterOptions(kubeconfig, context, snapshot)), **options)

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
        return ClusterOptions(options.kubeconfig, options.context)
    given = "--context" if options.kubeconfig is None else "--kubeconfig"
    raise click.UsageError(f"--snapshot is looked at instead of a cluster: leave out {given}.")


def output_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `output`, the OutputOptions."""

    @option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml"]),
        default="table",
        show_default=True,
        help="wide shows more of the same; the fields of json and yaml are described in docs/cli.md.",
    )
    @option("--no-color", is_flag=True, help="Without colors, as NO_COLOR asks for too.")
    @wraps(command)
    def with_output(*args: Any, output: OutputFormat, no_color: bool, **options: Any) -> R:
        return command(*args, output=OutputOptions(output, no_color), **options)

    return with_output


def namespace_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `namespace`, None for all."""

    @option("-n", "--namespace", metavar="NAME", help="Only this namespace.  [default: all of them]")
    @click.option(
        "-A", "--all-namespaces", is_flag=True, help="All namespaces, even where RESPREAD_NAMESPACE names one."
    )
    @wraps(command)
    def with_namespace(*args: Any, namespace: str | None, all_namespaces: bool, **options: Any) -> R:
        return command(*args, namespace=None if all_namespaces else namespace or None, **options)

    return with_namespace
