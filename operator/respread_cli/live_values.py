"""Values for the shell's completion, from the cluster or the snapshot that the options on the line select.

A shell has no place for an error: whatever goes wrong, nothing is offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import click

from respread.program.command_line import Items, offered

_SECONDS: Final = 3.0
_MOST: Final = 2000
_WORKLOADS: Final = (("deployments", "deploy", "Deployment"), ("statefulsets", "sts", "StatefulSet"))
_POLICIES: Final = (("clusterrebalancepolicies", "crbp"), ("rebalancepolicies", "rbp"))


def namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the cluster's namespaces."""
    return offered(incomplete, lambda: _names(ctx, "/api/v1/namespaces"))


def nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the cluster's nodes."""
    return offered(incomplete, lambda: _names(ctx, "/api/v1/nodes"))


def workloads(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer Deployments and StatefulSets, of the namespace on the line."""
    return offered(incomplete, lambda: _workloads(ctx, incomplete))


def targets(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer workloads and policies, and pods after `pod/`."""

    def found() -> Iterator[str]:
        if incomplete.startswith("pod/"):
            yield from (f"pod/{name}" for name in _names(ctx, _path(ctx, "/api/v1", "pods")))
            return
        yield from _workloads(ctx, incomplete)
        for resource, short in _POLICIES:
            base = "/apis/respread.dev/v1alpha1"
            path = f"{base}/{resource}" if short == "crbp" else _path(ctx, base, resource)
            yield from (f"{short}/{name}" for name in _names(ctx, path))

    return offered(incomplete, found)


def topology_keys(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> Items:
    """Offer the topology keys that every cluster has."""
    return offered(incomplete, lambda: ["hostname", "region", "zone"])


def _workloads(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """Yield `deploy/web`, or `web` if only a name was begun."""
    for resource, short, _ in _WORKLOADS:
        for name in _names(ctx, _path(ctx, "/apis/apps/v1", resource)):
            yield f"{short}/{name}"
            if incomplete and "/" not in incomplete:
                yield name


def _path(ctx: click.Context, base: str, resource: str) -> str:
    namespace = None if ctx.params.get("all_namespaces") else ctx.params.get("namespace")
    return f"{base}/{resource}" if not namespace else f"{base}/namespaces/{namespace}/{resource}"


def _names(ctx: click.Context, path: str) -> list[str]:
    """Return the names of objects; none if they may not be listed."""
    from respread_cli.read.cluster_view import ConnectionOptions  # noqa: PLC0415 - only for completion
    from respread_cli.read.connection import connect  # noqa: PLC0415 - as above

    if ctx.params.get("snapshot"):
        return _names_in_snapshot(ctx.params["snapshot"], path)
    options = ConnectionOptions(
        ctx.params.get("kubeconfig"),
        ctx.params.get("context"),
        ctx.params.get("as_user"),
        tuple(ctx.params.get("as_groups") or ()),
        _SECONDS,
    )
    with closing(connect(options)) as connection:
        return [each.name for each in connection.identities(path, {"limit": _MOST})]


def _names_in_snapshot(file: str, path: str) -> list[str]:
    from respread.cluster.pod import workload_of  # noqa: PLC0415 - as above
    from respread_cli.read.snapshot_file import STANDARD_INPUT, read_snapshot  # noqa: PLC0415 - only for completion

    if file == STANDARD_INPUT:
        return []
    view = read_snapshot(file)
    *_, before, namespace, resource = ["", "", *path.split("/")]
    wanted = namespace if before == "namespaces" else None
    if resource == "nodes":
        return sorted(view.snapshot.nodes)
    if resource == "namespaces":
        return sorted(view.snapshot.namespaces)
    if resource in {"clusterrebalancepolicies", "rebalancepolicies"}:
        return [each.object_name for each in view.policies if each.is_cluster_policy == resource.startswith("cluster")]
    if resource == "pods":
        return sorted(pod.name for pod in view.snapshot.pods_in(wanted))
    (kind,) = [kind for plural, _, kind in _WORKLOADS if plural == resource]
    return sorted({name.name for name in map(workload_of, view.snapshot.pods_in(wanted)) if name.kind == kind})
