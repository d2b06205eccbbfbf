"""Pod deletion costs while replicas are killed and answers of the API server are lost: no pod is patched twice."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from respread.controller.prevention_loop import UNKNOWN_SECONDS
from respread_sandbox import Sandbox
from tests.faults.operators import Replica
from tests.faults.proxy import Asked, Fault, FaultProxy
from tests.integration.operator_process import policy, requests
from tests.integration.prevention_cluster import PREVENTS, RIGHT, all_ready, create, patches
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import scale, wait_until

FAULTS = ("lose", "late 504", "truncate", "drop", "reset", "429", "500", "503", "delay")
SECONDS = 300


class Dice:
    """Injects all kinds of faults into many patches of pods."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def __call__(self, asked: Asked) -> Fault | None:
        if asked.method != "PATCH" or "/pods/" not in asked.path or self._rng.random() < 0.6:
            return None
        return Fault(self._rng.choice(FAULTS), seconds=0.2)


def is_patch(asked: Asked) -> bool:
    return asked.method == "PATCH" and "/pods/" in asked.path


def test_lost_answers_and_killed_leaders_cause_no_second_patch(installed_sandbox: Sandbox, tmp_path: Path) -> None:
    cluster = lay_out(installed_sandbox, 4, 4, 4)
    cluster.apply(RIGHT)
    cluster.create_namespace("shop")
    cluster.apply(json.dumps(policy(mode="DryRun", **PREVENTS)))
    replicas = {f"web-{number}": 9 for number in range(5)}
    options = ("--leader-election", "--lease-seconds", "3")
    with FaultProxy(cluster, Dice(1)) as one, FaultProxy(cluster, Dice(2)) as other:
        pair = [Replica(cluster, proxy, tmp_path, name, *options) for name, proxy in (("one", one), ("other", other))]
        with pair[0], pair[1]:
            for each in pair:
                each.wait_until_ready()
            for name, count in replicas.items():
                create(cluster, name, count, hostname=None)
            # Meanwhile the leader is killed and started again, and then the other replica.
            for killed_at in (10, 30):
                wait_until(lambda at=killed_at: len(patches(cluster)) >= at, "some patches", seconds=SECONDS)  # type: ignore[misc]  # no types for defaults
                wait_until(lambda: any(each.leads() for each in pair), "one of them to lead")
                leader = next((each for each in pair if each.leads()), pair[0])
                leader.kill()
                leader.start()
            wait_until(lambda: all_ready(cluster, replicas, ranked=True), "all pods to be ranked", seconds=SECONDS)
            for name in replicas:
                replicas[name] = 12
                scale(cluster, "shop", name, 12)
            wait_until(lambda: all_ready(cluster, replicas, ranked=True), "new pods to be ranked", seconds=SECONDS)
            time.sleep(3)
        spoilt = one.counts + other.counts
    assert set(patches(cluster).values()) == {1}
    # Of a patch whose client was killed, the API server may log another code than 200.
    asked = requests(cluster, '"verb":"patch"', '"resource":"pods"')
    assert len({each["objectRef"]["name"] for each in asked}) == sum(replicas.values())
    assert spoilt.keys() >= {"lose", "late 504", "500"}


def test_lost_answers_cause_no_second_patch_even_if_no_watch_shows_the_first(
    installed_sandbox: Sandbox, tmp_path: Path
) -> None:
    """Only reading the pods shows the result of the patches."""
    cluster = lay_out(installed_sandbox, 4, 4, 4)
    cluster.apply(RIGHT)
    cluster.create_namespace("shop")
    cluster.apply(json.dumps(policy(mode="DryRun")))
    create(cluster, "web", 9, hostname=None)
    wait_until(lambda: all_ready(cluster, {"web": 9}, ranked=False), "all pods to be there")
    spoilt = iter(("lose", "late 504", "truncate"))

    def lose_the_first(asked: Asked) -> Fault | None:
        kind = next(spoilt, None) if is_patch(asked) else None
        return None if kind is None else Fault(kind)

    with (
        FaultProxy(cluster, lose_the_first) as proxy,
        Replica(cluster, proxy, tmp_path, "one", "--leader-election", "--lease-seconds", "3") as replica,
    ):
        replica.wait_until_ready()
        wait_until(replica.leads, "it to lead")
        time.sleep(1)  # delayed events of the watch have arrived
        proxy.silent.add("/api/v1/pods")
        cluster.apply(json.dumps(policy(mode="DryRun", **PREVENTS)))
        wait_until(lambda: len(patches(cluster)) == 9, "all pods to be patched", seconds=SECONDS)
        time.sleep(UNKNOWN_SECONDS + 3)
        proxy.silent.clear()
        time.sleep(2)
        counts = proxy.counts
    assert counts.keys() >= {"lose", "late 504", "truncate"}
    assert set(patches(cluster).values()) == {1}
