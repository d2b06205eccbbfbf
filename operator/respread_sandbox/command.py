"""`respread sandbox`: an embedded real control plane with simulated nodes."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from respread.api.reasons import number_of
from respread_sandbox import Binaries, NodeShape, Sandbox, SandboxApi, SandboxError, SandboxOptions
from respread_sandbox.binaries import kubernetes_versions
from respread_sandbox.directory import NamedSandbox, running, stop
from respread_sandbox.karpenter import Karpenter

DEFAULT_NAME: Final = "default"
ENVIRONMENT: Final[dict[str, Any]] = {"auto_envvar_prefix": "RESPREAD_SANDBOX", "max_content_width": 100}


@click.group()
def sandbox() -> None:
    """A real Kubernetes control plane with simulated nodes, on this machine."""


@sandbox.command(context_settings=ENVIRONMENT)
@click.option("--nodes", type=click.IntRange(min=0), default=12, show_default=True, help="Number of simulated nodes.")
@click.option(
    "--zones", type=click.IntRange(min=1), default=3, show_default=True, help="Number of zones to spread them over."
)
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="To tell several apart.")
@click.option("--node-cpu", default="8", show_default=True, help="CPU of each node.")
@click.option("--node-memory", default="32Gi", show_default=True, help="Memory of each node.")
@click.option("--node-pods", default=110, show_default=True, help="Number of pods each node takes.")
@click.option(
    "--pod-ready-seconds", default=0.0, show_default=True, help="How long pods take from scheduled to Ready, at least."
)
@click.option(
    "--kubernetes-version",
    default="",
    metavar="VERSION",
    help=f"Minor or patch version of the control plane: {', '.join(kubernetes_versions())}.  [default: the newest]",
)
@click.option("--karpenter", is_flag=True, help="Also Karpenter with its KWOK provider, which adds and removes nodes.")
@click.option(
    "--scheduler-configuration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A KubeSchedulerConfiguration file for kube-scheduler.",
)
def up(
    *,
    nodes: int,
    zones: int,
    name: str,
    node_cpu: str,
    node_memory: str,
    node_pods: int,
    pod_ready_seconds: float,
    kubernetes_version: str,
    karpenter: bool,
    scheduler_configuration: Path | None,
) -> None:
    """Start a sandbox in the background and say how to use it."""
    options = SandboxOptions(
        nodes=nodes,
        zones=zones,
        shape=NodeShape(cpu=node_cpu, memory=node_memory, pods=node_pods),
        pod_ready_seconds=pod_ready_seconds,
        kubernetes_version=kubernetes_version,
        karpenter=karpenter,
        scheduler_configuration=scheduler_configuration.read_text("utf-8") if scheduler_configuration else "",
    )
    progress = Console(stderr=True)
    binaries = Binaries.find_or_build(kubernetes_version=kubernetes_version)
    if karpenter:
        Karpenter.find_or_build()
    begun = time.monotonic()
    with (
        progress.status("Starting etcd, kube-apiserver, kube-scheduler, kube-controller-manager and KWOK …"),
        Sandbox.start(options, name=name, binaries=binaries) as started,
    ):
        version = started.api.get("/version")["gitVersion"]
        description = started.leave_running()
    _show_how_to_use(description, version, time.monotonic() - begun)


@sandbox.command(context_settings=ENVIRONMENT)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(*, output: str) -> None:
    """Show the sandboxes that are up."""
    rows = [_row(each) for each in running()]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _show_table(rows)
    else:
        click.echo("No sandbox is up. Start one with: respread sandbox up")


@sandbox.command(context_settings=ENVIRONMENT)
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which one to stop.")
@click.option("--all", "everything", is_flag=True, help="Stop all of them.")
def down(*, name: str, everything: bool) -> None:
    """Stop a sandbox, and delete everything that belongs to it."""
    names = [each.name for each in running()] if everything else [name]
    for each in names:
        stop(each)
        click.echo(f"Sandbox {each} is down.")
    if not names:
        click.echo("No sandbox is up.")


def _show_how_to_use(started: NamedSandbox, version: str, took_seconds: float) -> None:
    console = Console()
    sizes = started.nodes_per_zone
    size = f"{number_of(sum(sizes.values()), 'node')} in {number_of(len(sizes), 'zone')}"
    console.print(
        f"[green]✓[/] Sandbox [bold]{started.name}[/] is up: Kubernetes {version}, {size}, {took_seconds:.1f} s",
        highlight=False,
    )
    option = "" if started.name == DEFAULT_NAME else f" --name {started.name}"
    lines = [f"export KUBECONFIG={shlex.quote(str(started.kubeconfig))}"]
    if shutil.which("kubectl") is None:
        lines.append(f"alias kubectl={shlex.quote(str(started.kubectl))}")
    lines += ["kubectl get nodes -L topology.kubernetes.io/zone", "respread skew", f"respread sandbox down{option}"]
    console.print("\nWhat to type next:")
    for line in lines:
        click.echo(f"  {line}")  # whole, whatever the terminal's width, to be copied


def _row(each: NamedSandbox) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": each.name,
        "state": "Starting",
        "zones": len(each.nodes_per_zone),
        "nodes": 0,
        "nodesReady": 0,
        "pods": 0,
        "startedAt": each.started_at,
        "server": each.server,
        "kubeconfig": str(each.kubeconfig),
    }
    if not each.is_started:
        return row
    try:
        with closing(SandboxApi(each.kubeconfig)) as api:
            nodes = api.get("/api/v1/nodes")["items"]
            pods = api.get("/api/v1/pods")["items"]
    except (SandboxError, OSError):
        return row | {"state": "NotResponding"}
    zones = {node["metadata"]["labels"].get("topology.kubernetes.io/zone") for node in nodes}
    ready = sum(
        condition["type"] == "Ready" and condition["status"] == "True"
        for node in nodes
        for condition in node["status"]["conditions"]
    )
    return row | {"state": "Up", "zones": len(zones), "nodes": len(nodes), "nodesReady": ready, "pods": len(pods)}


def _show_table(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold")
    for heading in ("NAME", "STATE", "NODES READY", "ZONES", "PODS", "AGE"):
        table.add_column(heading)
    for row in rows:
        nodes = f"{row['nodesReady']}/{row['nodes']}"
        age = _age(time.time() - row["startedAt"]) if row["startedAt"] else ""
        table.add_row(row["name"], row["state"], nodes, str(row["zones"]), str(row["pods"]), age)
    Console().print(table)
    for row in rows:
        if row["state"] != "Starting":
            click.echo(f"kubeconfig of {row['name']}: {row['kubeconfig']}")  # whole, whatever the terminal's width


def _age(seconds: float) -> str:
    """Return an age as kubectl prints it: 42s, 5m, 3h, 2d."""
    for unit, unit_seconds in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= unit_seconds:
            return f"{seconds // unit_seconds:.0f}{unit}"
    return f"{seconds:.0f}s"
