"""The changes to simulate, from the command line, resolved in a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from respread.api.reasons import listed
from respread.cluster.objects import Node
from respread.cluster.pod import WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.program.command_line import CommandError
from respread_cli.report.scale_downs import NEVER_SCALED
from respread_cli.report.skew_report import short_topology_key
from respread_cli.report.target import WorkloadReference, close_to, did_you_mean, is_pattern, workload_matches

MOST_DOMAINS: Final = 64
"""The loss of more domains than this is not simulated: one after another, each takes up to some seconds."""
_SLASHES_WITH_NAMESPACE: Final = 2
"""In `shop/deploy/web`."""


class Typed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes as on the command line."""

    # In the order in which they are made

    add_nodes: tuple[str, ...] = ()
    """`3` or `3,like=node-1` each."""
    remove_domain: tuple[str, ...] = ()
    """`zone=c` each."""
    restore_domain: tuple[str, ...] = ()
    """The same: the domain is lost, and comes back."""
    cordon: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()
    """`deploy/web=4` or `shop/deploy/web=4` each."""

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to simulate."""
        return not any(msgspec.structs.astuple(self))


class HypotheticalChanges(NamedTuple):
    """The changes in the order in which they are made."""

    add: tuple[Node, ...] = ()
    """Nodes to add, each by the node that it copies."""
    remove: tuple[str, ...] = ()
    """Names of nodes."""
    restore: tuple[str, ...] = ()
    """Names of nodes that are lost, and then come back without pods."""
    cordon: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    scale: tuple[tuple[WorkloadName, int], ...] = ()


def find_changes(typed: Typed, snapshot: ClusterSnapshot, namespace: str | None) -> HypotheticalChanges:
    """Return the changes for the arguments. A namespace of None is everywhere.

    Raises:
        CommandError: there is no such object, or more than one. The message lists them.
    """
    removed = tuple(name for each in typed.remove_domain for name in _nodes_in(each, snapshot, "remove"))
    restored = tuple(name for each in typed.restore_domain for name in _nodes_in(each, snapshot, "restore"))
    drained = tuple(_node(name, snapshot, f"--drain {name}").name for name in typed.drain)
    cordoned = tuple(_node(name, snapshot, f"--cordon {name}").name for name in typed.cordon)
    return HypotheticalChanges(
        add=tuple(node for each in typed.add_nodes for node in _models(each, snapshot)),
        remove=tuple(dict.fromkeys(removed)),
        restore=tuple(name for name in dict.fromkeys(restored) if name not in removed),
        cordon=tuple(name for name in dict.fromkeys(cordoned) if name not in removed),
        drain=tuple(name for name in dict.fromkeys(drained) if name not in removed),
        scale=tuple(_scaled(each, snapshot, namespace) for each in typed.scale),
    )


# Workloads


def _scaled(typed: str, snapshot: ClusterSnapshot, namespace: str | None) -> tuple[WorkloadName, int]:
    name, equals, number = typed.rpartition("=")
    if not equals or not name or not number.isdecimal():
        raise CommandError(f"--scale {typed}: say which workload and to how many pods, as in --scale deploy/web=4.")
    if name.count("/") == _SLASHES_WITH_NAMESPACE:
        given, _, name = name.partition("/")
        if namespace not in (None, given):
            raise CommandError(f"--scale {typed}: its namespace is not {namespace}, which -n names.")
        namespace = given
    there = _workloads(snapshot, namespace)
    found = sorted(each for each in there if each.name and _is_meant(name, each))
    if not found:
        raise CommandError(f"--scale {typed}: {_unknown(name, there, _workloads(snapshot, None), namespace)}")
    if len(found) > 1:
        raise CommandError(f"--scale {typed}: {_ambiguous(found)}")
    (workload,) = found
    if workload.kind in NEVER_SCALED:
        raise CommandError(f"--scale {typed}: {_short(workload)} is not scaled: {NEVER_SCALED[workload.kind]}.")
    return workload, int(number)


def _workloads(snapshot: ClusterSnapshot, namespace: str | None) -> set[WorkloadName]:
    pods = snapshot.pods_in(namespace)
    return {workload_of(pod) for pod in pods if not pod.terminating and not pod.finished}


def _is_meant(typed: str, workload: WorkloadName) -> bool:
    return not is_pattern(typed) and workload_matches(typed, workload)


def _unknown(name: str, there: Iterable[WorkloadName], known: Iterable[WorkloadName], namespace: str | None) -> str:
    where = "" if namespace is None else f" in namespace {namespace}"
    said = f"there is no pod of {name}{where}"
    elsewhere = sorted({each.namespace for each in known if _is_meant(name, each)})
    if elsewhere:
        return f"{said}, but in {listed(elsewhere)}."
    kind, slash, bare = name.rpartition("/")
    near = set(close_to(bare, {each.name for each in there}))
    if near:
        meant = sorted({_short(each) if slash else each.name for each in there if each.name in near})
        return f"{said}.{did_you_mean(meant)}"
    hint = "A workload without pods can't be simulated: its pod template is read from them."
    return f"{said}. {hint}" if kind or not slash else f"{said}."


def _ambiguous(found: Sequence[WorkloadName]) -> str:
    if len({each.namespace for each in found}) > 1:
        namespaces = listed(list(dict.fromkeys(each.namespace for each in found)))
        return f"there is one in each of namespaces {namespaces}: name one by -n."
    return f"that may be {' or '.join(_short(each) for each in found)}: say which."


def _short(workload: WorkloadName) -> str:
    return str(WorkloadReference.of(workload))


# Nodes


def _node(name: str, snapshot: ClusterSnapshot, typed: str) -> Node:
    node = snapshot.nodes.get(name)
    if node is None:
        raise CommandError(f"{typed}: there is no node {name}.{did_you_mean(close_to(name, snapshot.nodes))}")
    return node


def _nodes_in(typed: str, snapshot: ClusterSnapshot, verb: str) -> list[str]:
    option = f"--{verb}-domain"
    key, equals, value = typed.partition("=")
    if not equals or not key or not value:
        raise CommandError(f"{option} {typed}: say a topology key and a value, as in {option} zone=c.")
    if not (meant := _domains_meant(key, snapshot)):
        raise CommandError(f"{option} {typed}: no node has a label {key}.")
    found = [domains[value] for domains in meant.values() if value in domains]
    if not found:
        values = sorted({each for domains in meant.values() for each in domains})
        raise CommandError(f"{option} {typed}: no node has {key}={value}. The values of {key} are {listed(values)}.")
    if any(each != found[0] for each in found):
        raise CommandError(f"{option} {typed}: {key} may be {' or '.join(meant)}: write the whole key.")
    return found[0]


def domains_of(typed: str, snapshot: ClusterSnapshot) -> tuple[str, dict[str, list[str]]]:
    """Return the whole topology key that is meant, and the names of the nodes of each of its domains.

    A key, or the part of it after the last slash, is typed.

    Raises:
        CommandError: no node has such a label, or it may be one of several, or there are too many domains.
    """
    meant = _domains_meant(typed, snapshot)
    if not meant:
        raise CommandError(f"--each-domain {typed}: no node has a label {typed}.")
    key, domains = next(iter(meant.items()))
    if any(other != domains for other in meant.values()):
        raise CommandError(f"--each-domain {typed}: {typed} may be {' or '.join(meant)}: write the whole key.")
    if len(domains) > MOST_DOMAINS:
        raise CommandError(
            f"--each-domain {typed}: nodes have {len(domains)} values of {key}, and {MOST_DOMAINS} are the most."
        )
    return key, dict(sorted(domains.items()))


def _domains_meant(key: str, snapshot: ClusterSnapshot) -> dict[str, dict[str, list[str]]]:
    """Return the nodes, sorted, of each value of the labels that a word may mean.

    It means the label of that name, else those with it after the last slash.
    """
    keys = {label for node in snapshot.nodes.values() for label in node.labels}
    meant = [key] if key in keys else sorted(label for label in keys if short_topology_key(label) == key)
    found: dict[str, dict[str, list[str]]] = {label: {} for label in meant}
    for name, node in sorted(snapshot.nodes.items()):
        for label in meant:
            if (value := node.labels.get(label)) is not None:
                found[label].setdefault(value, []).append(name)
    return found


def _models(typed: str, snapshot: ClusterSnapshot) -> list[Node]:
    """Return the nodes to copy. If none is named, one of each zone in turn."""
    number, comma, like = typed.partition(",")
    option, equals, name = like.partition("=")
    if not number.isdecimal() or not int(number) or (comma and (option != "like" or not equals or not name)):
        raise CommandError(f"--add-nodes {typed}: say how many, as in --add-nodes 3 or --add-nodes 3,like=node-1.")
    if name:
        return [_node(name, snapshot, f"--add-nodes {typed}")] * int(number)
    by_zone: dict[str, Node] = {}
    for each in sorted(snapshot.nodes.values(), key=lambda node: node.name):
        if (
            each.ready
            and not each.unschedulable
            and not any(taint.effect != "PreferNoSchedule" for taint in each.taints)
        ):
            by_zone.setdefault(each.labels.get("topology.kubernetes.io/zone", ""), each)
    models = [by_zone[zone] for zone in sorted(by_zone)]
    if not models:
        raise CommandError(f"--add-nodes {typed}: every node has a taint or is cordoned: name one by like=NODE.")
    return [models[at % len(models)] for at in range(int(number))]
