"""The same cluster has the same plan in every process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, snapshot_of


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
