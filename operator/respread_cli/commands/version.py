"""`respread version`: of this program, of the operator that leads in the cluster, and of Kubernetes."""

from __future__ import annotations

import platform
from contextlib import closing
from datetime import datetime
from http import HTTPStatus
from typing import Final

import click
import msgspec

from respread import __version__
from respread.cluster.meta import VERSION
from respread.kube.leadership import COMMON_NAMESPACE, INSTALLED_NAMESPACE
from respread.planning.victims.protection import OWN_LABELS
from respread.program.command_line import ENVIRONMENT, CommandError, CommandWithExamples, Example
from respread_cli.options import client_options
from respread_cli.read.cluster_view import ConnectionOptions
from respread_cli.read.connection import Connection, connect

EXAMPLES: Final = (
    Example("The versions of this program, the operator and Kubernetes", "version"),
    Example("Only the version of this program", "version --client"),
    Example("Whether the operator is as new as this program", "version -o json --context prod"),
)

LEASE_NAME: Final = "respread"
"""The default of the operator's --lease-name."""


class Leader(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The operator that acts in a cluster."""

    version: str | None
    """None if it does not tell."""
    identity: str
    """Its pod, or the machine on which it runs."""
    lease: str
    """Namespace and name."""
    renewed_at: datetime | None


class NotKnownError(Exception):
    """The user may not read the Lease. The message is a sentence without its end."""


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _VersionReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    client_version: str
    python_version: str
    operator: Leader | None = None
    server_version: str | None = None


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings=ENVIRONMENT)
@click.option("--client", is_flag=True, help="Show only the version of this program, without contacting a cluster.")
@click.option("--lease-name", metavar="NAME", default=LEASE_NAME, show_default=True, help="The operator's Lease.")
@click.option("--lease-namespace", metavar="NAME", help="The Lease's namespace.  [default: as for the operator]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@client_options
def version(
    *, client: bool, lease_name: str, lease_namespace: str | None, output: str, connection: ConnectionOptions
) -> None:
    """Show the versions of client, operator and Kubernetes.

    The operator is the one that leads. Its version is on the Lease that it holds. If no cluster is named and none can
    be reached, only the version of this program is shown.

    Exit code: 0, or 2 for an error.
    """
    report = _VersionReport(client_version=__version__, python_version=platform.python_version())
    if output == "text":
        click.echo(f"Client:      {report.client_version} (Python {report.python_version})")
    unknown = ""
    if not client:
        try:
            with closing(connect(connection)) as server:
                report = msgspec.structs.replace(report, server_version=server.version() or None)
                leader = _find_leader(server, lease_namespace=lease_namespace, lease_name=lease_name)
                report = msgspec.structs.replace(report, operator=leader)
        except NotKnownError as error:
            unknown = f"unknown: {error}"
        except CommandError as error:
            if connection != ConnectionOptions():
                raise
            click.echo(f"Note: the versions in a cluster are not known. {_first_sentence(error.message)}", err=True)
            client = True
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif not client:
        click.echo(f"Operator:    {unknown or _said(report.operator)}")
        click.echo(f"Kubernetes:  {report.server_version or 'unknown'}")


def _first_sentence(message: str) -> str:
    first = message.partition(". ")[0].rstrip(".")
    return f"{first[:1].upper()}{first[1:]}."


def _said(leader: Leader | None) -> str:
    if leader is None:
        return "none leads: no Lease of an operator has a holder"
    renewed = "" if leader.renewed_at is None else f", renewed at {leader.renewed_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{leader.version or 'unknown'} ({leader.identity} holds Lease {leader.lease}{renewed})"


def _find_leader(server: Connection, *, lease_namespace: str | None, lease_name: str) -> Leader | None:
    """Return the operator that leads; None if no Lease has a holder. Without a namespace, look where they put it."""
    places = [lease_namespace] if lease_namespace is not None else _places(server)
    for namespace in places:
        response = server.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease_name}")
        if response.status_code == HTTPStatus.FORBIDDEN:
            raise NotKnownError(f"you are not allowed to get the Lease {namespace}/{lease_name}")
        if not response.ok:
            continue
        lease = msgspec.json.decode(response.content, type=_Lease)
        if lease.spec.holder_identity:
            return Leader(
                version=(lease.metadata.annotations or {}).get(VERSION),
                identity=lease.spec.holder_identity,
                lease=f"{namespace}/{lease_name}",
                renewed_at=lease.spec.renew_time,
            )
    return None


def _places(server: Connection) -> list[str]:
    """Return the namespaces in which a Lease may be: those of the operator's pods, and those that have none of them."""
    selector = ",".join(f"{key}={value}" for key, value in OWN_LABELS.items())
    found = sorted(
        {pod.namespace for pod in server.identities("/api/v1/pods", {"labelSelector": selector, "limit": 50})}
    )
    return list(dict.fromkeys([*found, INSTALLED_NAMESPACE, COMMON_NAMESPACE]))
