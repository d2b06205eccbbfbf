"""`respread run`: the operator."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args

import click

from respread.controller.options import LeaseOptions, OperatorOptions, SecurePlace
from respread.controller.permissions import ASK_AGAIN_SECONDS
from respread.kube.access import AccessError
from respread.kube.leadership import LeaseTimes
from respread.program.command_line import (
    ENVIRONMENT,
    CommandError,
    CommandWithExamples,
    Example,
    connection_options,
    namespaced_policies_option,
    scheduler_option,
)
from respread.program.operator import run as run_operator
from respread.scheduling.configuration import SchedulerConfiguration
from respread.telemetry.logs import LogFormat, LogLevel, configure_logging
from respread.telemetry.server import ListenAddress, parse_listen_address
from respread.telemetry.tls import ServedCertificate

if sys.platform == "win32":
    new_event_loop = asyncio.new_event_loop
else:
    from uvloop import new_event_loop

_CANNOT_LISTEN: Final = {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES}


def _read_by(read: Callable[[Any], object]) -> Callable[..., object]:
    """Return a callback of an option that reads its value, if it is given. An error is of the option."""

    def callback(_ctx: click.Context, param: click.Parameter, value: Any) -> object:
        try:
            return None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.", param=param) from error

    return callback


EXAMPLES: Final = (
    Example("Run on your machine against the current context, with any free port", "run --listen-address 127.0.0.1:0"),
    Example(
        "Ignore namespaced policies, and write JSON logs for a collector",
        "run --namespaced-policies ignore --log-format json",
    ),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@connection_options
@click.option(
    "--listen-address",
    metavar="HOST:PORT",
    callback=_read_by(parse_listen_address),
    default="127.0.0.1:8080",
    show_default=True,
    help="Where to serve /metrics, /livez and /readyz; :8080 is port 8080 of every address.",
)
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    callback=_read_by(parse_listen_address),
    help="Serve /metrics here instead, over TLS, to whom the API server knows by a bearer token and lets get /metrics. "
    "Needs --metrics-certificate.",
)
@click.option(
    "--metrics-certificate",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    callback=_read_by(ServedCertificate),
    help="The folder of tls.crt and tls.key for --metrics-address. They are read again when they change.",
)
@click.option(
    "--leader-election/--no-leader-election",
    default=True,
    show_default=True,
    help="Act only while holding a Lease, so that only one operator of a cluster acts, wherever they run.",
)
@click.option("--lease-name", metavar="NAME", default="respread", show_default=True, help="The name of the Lease.")
@click.option(
    "--lease-seconds",
    type=click.IntRange(3, 3600),
    default=15,
    show_default=True,
    help="How long other replicas wait for a leader that does not renew the Lease.",
)
@click.option(
    "--lease-namespace",
    metavar="NAME",
    help="The Lease's namespace.  [default: the operator's own in a cluster, else the installed one's, else default]",
)
@scheduler_option
@namespaced_policies_option(
    help="Whether to use RebalancePolicies, which are namespaced. ClusterRebalancePolicies are always used."
)
@click.option(
    "--placeholder-image",
    metavar="IMAGE",
    default="registry.k8s.io/pause:3.10",
    show_default=True,
    help="The image of placeholder pods, which request nodes in empty domains for policies that say so.",
)
@click.option(
    "--permissions-seconds",
    type=click.FloatRange(1),
    default=ASK_AGAIN_SECONDS,
    show_default=True,
    help="How often to ask whether a missing optional permission is granted now.",
)
@click.option(
    "--domain-metrics/--no-domain-metrics",
    default=True,
    show_default=True,
    help="Whether to serve respread_spread_pods, a series for each domain of each constraint with at most 16 domains.",
)
@click.option(
    "--helm-release",
    metavar="NAME",
    help="The Helm release that installed the operator, for advice on missing permissions. The chart sets it.",
)
@click.option(
    "--log-format", type=click.Choice(get_args(LogFormat)), help="[default: console on a terminal, else json]"
)
@click.option(
    "--log-level",
    type=click.Choice(get_args(LogLevel)),
    default="info",
    show_default=True,
    help="The least severe lines to write.",
)
def run(
    *,
    kubeconfig: str | None,
    context: str | None,
    listen_address: ListenAddress,
    metrics_address: ListenAddress | None,
    metrics_certificate: ServedCertificate | None,
    leader_election: bool,
    lease_name: str,
    lease_namespace: str | None,
    lease_seconds: int,
    scheduler_configuration: SchedulerConfiguration,
    namespaced_policies: str,
    placeholder_image: str,
    permissions_seconds: float,
    domain_metrics: bool,
    helm_release: str | None,
    log_format: LogFormat | None,
    log_level: LogLevel,
) -> None:
    """Run the operator.

    It watches the cluster, plans for every policy, and evicts for policies in mode Enforce, until SIGTERM or Ctrl-C.
    Normally it runs in the cluster (see manifests/). To try it, run it here.
    """
    configure_logging(sys.stderr, log_format=log_format, level=log_level)
    secure_metrics = None
    if metrics_address is not None and metrics_certificate is not None:
        secure_metrics = SecurePlace(metrics_address, metrics_certificate)
    elif metrics_address is not None or metrics_certificate is not None:
        raise click.UsageError("--metrics-address and --metrics-certificate need each other.")
    options = OperatorOptions(
        kubeconfig=kubeconfig,
        context=context,
        listen_address=listen_address,
        secure_metrics=secure_metrics,
        lease=LeaseOptions(leader_election, lease_name, lease_namespace, LeaseTimes(lease_seconds)),
        scheduler_configuration=scheduler_configuration,
        namespaced_policies=namespaced_policies == "honor",
        placeholder_image=placeholder_image,
        permissions_seconds=permissions_seconds,
        domain_metrics=domain_metrics,
        helm_release=helm_release,
    )
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run_operator(options))
    except AccessError as error:
        raise CommandError(f"{error}.") from error
    except OSError as error:
        if error.errno not in _CANNOT_LISTEN:
            raise
        raise CommandError(f"{error.strerror}.") from error
