"""The control plane on which all small clusters of bench/compare are set up, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from bench.compare.judge import WorldJudge
from bench.compare.world import Constraint, Workload, World, Zone
from respread_sandbox import Binaries, NodeShape, Sandbox, SandboxOptions
from respread_sandbox.components import SCHEDULER
from tests.integration.operator_process import install
from tests.integration.reused_sandbox import ReusedSandbox
from tests.integration.workloads import HOSTNAME, ZONE, budget, constraint, create_deployment, deployment, pods, scale
from tests.processes import wait_until

READY_AFTER: Final = "sandbox.respread.dev/ready-after-seconds"
CHANGED_AT: Final = "bench.respread.dev/changed-at"
TAINT: Final = {"key": "bench.respread.dev/reserved", "effect": "NoSchedule"}


class Stage:
    """A control plane with Respread installed, and otherwise only the objects of a world."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Use a sandbox in which Respread was just installed."""
        self.sandbox = sandbox
        self._as_new = ReusedSandbox(sandbox)

    @classmethod
    @contextmanager
    def started(cls, binaries: Binaries | None = None) -> Iterator[Self]:
        """Start the control plane, and stop it at the end of the block.

        Args:
            binaries: its programs; by default they are found or built.
        """
        with Sandbox.start(SandboxOptions(nodes=0), binaries=binaries) as sandbox:
            install(sandbox)
            scale(sandbox, "respread-system", "respread", 0)  # the operator is a process beside it
            yield cls(sandbox)

    @contextmanager
    def set_up(self, world: World) -> Iterator[WorldJudge]:
        """Set up the start of a world, and yield its judge."""
        self._as_new.reset()
        self._add_nodes(world)
        self.sandbox.create_namespace(world.name)
        judge = WorldJudge(self.sandbox.api, world)
        try:
            self._place(world)
            wait_until(judge.is_as_declared, lambda: f"the pods of {world.name}; there are {judge.describe()}")
            for zone, shape in world.zones.items():
                if shape.cordoned:
                    self.sandbox.nodes.cordon(*(node for node, of in world.zone_of().items() if of == zone))
            wait_until(lambda: self._budgets_are_known(world), f"the budgets of {world.name}")
            out = [node for node, zone in world.zone_of().items() if zone == world.outage]
            self.sandbox.nodes.cordon(*out)
            for workload in world.workloads:
                if workload.changed:
                    self._change(world, workload)
            if world.outage:
                wait_until(lambda: self._rollouts_are_decided(world), f"the rollouts of {world.name}")
            self.sandbox.nodes.uncordon(*out)
            yield judge
        finally:
            judge.close()

    def _add_nodes(self, world: World) -> None:
        for zone, shape in world.zones.items():
            self.sandbox.nodes.add(shape.nodes, f"zone-{zone}", _node_shape(shape))
        added = set(world.zone_of())
        wait_until(lambda: self.sandbox.nodes.ready() == added, f"the nodes of {world.name} to be Ready")

    def _place(self, world: World) -> None:
        """Create the workloads, and bind each pod to its node instead of the scheduler."""
        self.sandbox.freeze_component(SCHEDULER)
        try:
            for workload in world.workloads:
                if workload.max_unavailable is not None:
                    path = f"/apis/policy/v1/namespaces/{world.name}/poddisruptionbudgets"
                    self.sandbox.api.request("POST", path, budget(workload.name, workload.max_unavailable))
                create_deployment(self.sandbox, world.name, _manifest(workload))
            for workload in world.workloads:
                wait_until(self._has_pods(world, workload), f"{workload.replicas} pods of {workload.name}")
                nodes = [node for node, count in world.start(workload).items() for _ in range(count)]
                names = [pod["metadata"]["name"] for pod in pods(self.sandbox, world.name, workload.name)]
                for name, node in zip(names, nodes, strict=True):
                    path = f"/api/v1/namespaces/{world.name}/pods/{name}/binding"
                    self.sandbox.api.request("POST", path, _binding(name, node))
        finally:
            self.sandbox.thaw_component(SCHEDULER)

    def _has_pods(self, world: World, workload: Workload) -> Callable[[], bool]:
        return lambda: len(pods(self.sandbox, world.name, workload.name)) == workload.replicas

    def _budgets_are_known(self, world: World) -> bool:
        path = f"/apis/policy/v1/namespaces/{world.name}/poddisruptionbudgets"
        replicas = {each.name: each.replicas for each in world.workloads}
        return all(
            budget.get("status", {}).get("currentHealthy") == replicas[budget["metadata"]["name"]]
            for budget in self.sandbox.api.get(path)["items"]
        )

    def _rollouts_are_decided(self, world: World) -> bool:
        """Return whether the rollouts that nothing blocks are over, and all others wait for a pod without a node."""
        return all(self._rollout_is_decided(world, each) for each in world.workloads if each.changed)

    def _rollout_is_decided(self, world: World, workload: Workload) -> bool:
        if not workload.soft:
            there = pods(self.sandbox, world.name, workload.name)
            return any(
                each["type"] == "PodScheduled" and each["status"] == "False"
                for pod in there
                for each in pod["status"].get("conditions", ())
            )
        path = f"/apis/apps/v1/namespaces/{world.name}/deployments/{workload.name}"
        found = self.sandbox.api.get(path)
        status, number = found["status"], workload.replicas
        seen = bool(status.get("observedGeneration") == found["metadata"]["generation"])
        return seen and [status.get(f"{each}eplicas", 0) for each in ("r", "updatedR", "readyR")] == [number] * 3

    def _change(self, world: World, workload: Workload) -> None:
        """Start a rollout."""
        path = f"/apis/apps/v1/namespaces/{world.name}/deployments/{workload.name}"
        metadata = {"annotations": {CHANGED_AT: str(time.time())}}
        self.sandbox.api.request("PATCH", path, {"spec": {"template": {"metadata": metadata}}})


def _node_shape(zone: Zone) -> NodeShape:
    return NodeShape(cpu=str(zone.cpu), taints=(TAINT,) if zone.tainted else ())


def _manifest(workload: Workload) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if workload.only_zones:
        zones = [f"zone-{zone}" for zone in workload.only_zones]
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if workload.one_a_node:
        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": workload.name}}}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    manifest = deployment(
        workload.name,
        replicas=workload.replicas,
        constraints=[_constraint(workload, each) for each in workload.constraints],
        cpu=f"{workload.milli_cpu}m",
        annotations={READY_AFTER: f"{workload.ready_seconds:g}"},
        affinity=affinity,
        tolerations=[{**TAINT, "operator": "Exists"}] if workload.tolerates else [],
    )
    manifest["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return manifest


def _constraint(workload: Workload, each: Constraint) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if each.min_domains > 1:
        fields["minDomains"] = each.min_domains
    if each.honors_taints:
        fields["nodeTaintsPolicy"] = "Honor"
    if each.each_template:
        fields["matchLabelKeys"] = ["pod-template-hash"]
    return constraint(
        ZONE if each.over == "zones" else HOSTNAME,
        workload.name,
        max_skew=each.max_skew,
        when_unsatisfiable="ScheduleAnyway" if each.soft else "DoNotSchedule",
        **fields,
    )


def _binding(pod: str, node: str) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
