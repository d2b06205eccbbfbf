"""Plans of drawn clusters say what they have always said, in each process, and take as many looks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.unit.planning.blocked_plans import plan_of
from tests.unit.planning.plans_of_record import CLUSTERS, RECORD, lines_of
from tests.worlds import HOSTNAME, ZONE, cluster, constraint, node, pod, pods, spec

ROOT = Path(__file__).parents[3]
PARTS = 48
_SHOW = """
from tests.unit.planning.plans_of_record import lines_of
for at in (2, 16, 37, 45, 67, 83, 137, 187, 188):
    print(*lines_of(at))
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_plans_say_what_they_have_said(part: int) -> None:
    """See `plans_of_record.py` for what to do after a change that makes plans better."""
    numbers = range(part, CLUSTERS, PARTS)
    recorded = [line for line in RECORD.read_text().splitlines() if int(line.partition(".")[0]) in numbers]
    assert [line for number in numbers for line in lines_of(number)] == recorded


def test_a_plan_does_not_depend_on_the_order_of_sets() -> None:
    """Sets have another order in each process, and a new leader goes on with what the last one has begun."""

    def plans(hash_seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        return subprocess.run(
            [sys.executable, "-c", _SHOW], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert plans(1) == plans(4) == plans(5)


def test_groups_of_a_component_are_named_in_the_order_of_their_topology_keys() -> None:
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
