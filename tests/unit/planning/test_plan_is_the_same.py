"""The same cluster has the same plan in every process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, snapshot_of
from tests.unit.planning.blocked_plans import plan_of
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, pods, spec


def test_processes_with_different_hash_seeds_make_the_same_plan(tmp_path: Path) -> None:
    chance = random.Random(5)
    nodes = [manifest_of_node(f"{zone}{number}", zone) for zone in "abc" for number in range(4)]
    names = [node["metadata"]["name"] for node in nodes]
    pods = [
        pod
        for number in range(12)
        for pod in deployment_pods(f"web-{number}", {chance.choice(names): chance.randint(1, 4) for _ in range(4)})
    ]
    file = snapshot_of(tmp_path, [*nodes, *pods])
    command = [sys.executable, "-m", "respread_cli.main", "plan", "--snapshot", str(file), "-o", "json"]
    plans = []
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        plan = json.loads(done.stdout)
        del plan["time"]
        plans.append(plan)
    assert plans[0]["moves"]
    assert plans[0] == plans[1] == plans[2]


def test_groups_of_a_component_are_named_in_the_order_of_their_topology_keys() -> None:
    """A set of groups is in another order in each process."""
    of = spec(constraint(), constraint(HOSTNAME))
    there = [
        msgspec.structs.replace(each, namespace=f"team-{team}")
        for team in range(12)
        for each in (*pods({"a1": 3, "b1": 1}, of), pod("new", "", of))
    ]
    plan = plan_of(cluster([node("a1", "a"), node("b1", "b")], there))
    for team in range(12):
        keys = [each.group.topology_key for each in plan.blocked if each.group.namespace == f"team-{team}"]
        assert keys == sorted((HOSTNAME, ZONE))
