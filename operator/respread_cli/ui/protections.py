"""Whether scale-downs of workloads follow Respread's costs. Workloads with unchanged pods are not examined again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from respread.cluster.pod import WorkloadName
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.replica_set import ReplicaSetIndex, ReplicaSetPods
from respread_cli.report.planned import Planned
from respread_cli.report.scale_downs import ProtectionReport, WorkloadPods, is_known, protection_of

LONG_SECONDS: Final = 0.1
REST: Final = 9.0
"""An answer that took longer than `LONG_SECONDS` is kept for so many times as long: while thousands of pods change each
second, other things are more urgent."""


class Protections:
    """Whether workloads are protected in one state of a cluster after another."""

    def __init__(self) -> None:
        self._index = ReplicaSetIndex()
        self._replica_sets: dict[WorkloadName, dict[str, ReplicaSetPods]] = {}
        self._workloads: dict[str, WorkloadName] = {}
        """Of the ReplicaSets, by UID."""
        self._policies = PolicyIndex(())
        self._depends_on: tuple[Any, ...] = ()
        """The basis of the answers for all workloads."""
        self._found: dict[WorkloadName, ProtectionReport] = {}
        """Of workloads with ReplicaSets."""
        self._others: dict[WorkloadName, ProtectionReport] = {}
        """Of workloads whose kind alone decides."""
        self._answer: dict[WorkloadName, ProtectionReport] = {}
        self._rests_until = -math.inf

    def of(self, planned: Planned) -> Mapping[WorkloadName, ProtectionReport]:
        """Return whether the workloads with constraints are protected; empty if policies could not be read."""
        view = planned.view
        if not is_known(view):
            return {}
        begun = time.monotonic()
        if begun < self._rests_until:
            return self._answer
        changed = self._follow(planned)
        contested = {name: record.contested_costs for name, record in view.records.items() if record.contested_costs}
        depends_on = (view.policies, view.snapshot.namespaces, contested)
        if depends_on != self._depends_on:
            self._depends_on, self._policies, self._found = depends_on, PolicyIndex(view.policies), {}
            changed = self._replica_sets.keys()
        for name in changed:
            self._found.pop(name, None)
            if replica_sets := self._replica_sets.get(name):
                self._found[name] = self._report(name, tuple(replica_sets.values()), planned)
        others = {
            name: self._others.get(name) or self._report(name, (), planned)
            for group in planned.spread.groups.values()
            for name in group.workloads
            if name.kind not in _WITH_REPLICA_SETS
        }
        self._others = others
        self._answer = {**self._found, **others}
        ended = time.monotonic()
        self._rests_until = ended + REST * (ended - begun) if ended - begun > LONG_SECONDS else ended
        return self._answer

    def _follow(self, planned: Planned) -> Iterable[WorkloadName]:
        """Take over the ReplicaSets, and return the workloads of the changed ones."""
        changes = self._index.update(planned.view.snapshot, planned.spread)
        changed: set[WorkloadName] = set()
        for uid in (*changes.gone, *(each.controller.uid for each in changes.changed)):
            if (name := self._workloads.pop(uid, None)) is not None:
                changed.add(name)
                del self._replica_sets[name][uid]
        for each in changes.changed:
            if not each.pods:
                continue
            uid, name = each.controller.uid, each.workload
            changed.add(name)
            self._workloads[uid] = name
            self._replica_sets.setdefault(name, {})[uid] = each
        for name in changed:
            if not self._replica_sets[name]:
                del self._replica_sets[name]
        return changed

    def _report(
        self, name: WorkloadName, replica_sets: tuple[ReplicaSetPods, ...], planned: Planned
    ) -> ProtectionReport:
        workload = WorkloadPods(
            name=name,
            pods=tuple(pod for each in replica_sets for pod in each.pods),
            groups=tuple(group for each in replica_sets for group in each.groups),
            replica_sets=replica_sets,
        )
        view = planned.view
        return protection_of(workload, self._policies, view.snapshot, view.records)


_WITH_REPLICA_SETS = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "Rollout"})
"""Kinds of workloads with ReplicaSets. If one has none, all its pods are being deleted."""
