"""What the rules of the audit look at: a constraint of pods, and what is known about pods and nodes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import Map

from respread.cluster.pod import TopologySpreadConstraint
from respread.planning.audit.known_nodes import KnownNodes
from respread.spread.carried import own_keys
from respread.spread.group import GroupKey, Template


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A topology spread constraint of the pods of one template. What is not known makes no rule apply."""

    template: Template
    key: GroupKey
    """The constraint as it counts pods and nodes."""
    keys: tuple[GroupKey, ...]
    """All constraints of the template, in their order."""
    position: int | None
    """Which of the template's own constraints it is; None for a default constraint of the scheduler."""
    nodes: KnownNodes | None = None
    pods: int | None = None
    """How many pods it counts, with those that have no node yet; None if not known."""
    only_own: bool = False
    """Whether all pods that it counts have it themselves."""
    waiting: int = 0
    """How many pods that have it have no node, although the scheduler has tried."""
    counts: Mapping[str, int] = Map()
    """Pods by domain, as in a `SpreadGroup`."""

    @property
    def hard(self) -> bool:
        """Whether it is a DoNotSchedule constraint."""
        return self.key.when_unsatisfiable == "DoNotSchedule"

    @property
    def constraint(self) -> TopologySpreadConstraint | None:
        """The constraint as in the pod's spec; None for a default one."""
        own = self.template.spec.topology_spread_constraints
        return None if self.position is None else own[self.position]

    @property
    def counts_own_pods(self) -> bool:
        """Whether the pods that have it count. An empty selector counts no pod (`countPodsMatchSelector`)."""
        return counts_own(self.key, self.template)

    @property
    def limits_own_pods_alone(self) -> bool:
        """Whether the pods that have it are those that it counts."""
        return self.only_own and self.counts_own_pods


def counts_own(key: GroupKey, template: Template) -> bool:
    """Return whether a constraint counts pods of a template."""
    return not key.selector.matches_everything and key.selector.matches(template.labels)


def subjects_of(
    namespace: str, template: Template, nodes: KnownNodes | None = None, replicas: int | None = None
) -> tuple[Subject, ...]:
    """Return the constraints of a template of which no pod needs to exist, such as that of a manifest.

    Args:
        namespace: the namespace of the pods.
        template: the template.
        nodes: the nodes; None if not known.
        replicas: how many pods there are to be; None if not known.
    """
    keys = own_keys(namespace, template)
    return tuple(
        Subject(
            template=template,
            key=key,
            keys=keys,
            position=position,
            nodes=nodes,
            pods=replicas if counts_own(key, template) else None,
            only_own=True,
        )
        for position, key in enumerate(keys)
    )
