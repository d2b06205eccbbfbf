"""The cost of a plan: from scratch, and after one pod has changed.

    python -m bench.plan [--nodes 1000 5000 15000] [--one-namespace 200 2000 20000] [--violated 0.1]

prints a row for each number of nodes, with a workload of 30 pods for each node, 50 workloads in a namespace, and one
violated group in ten. It also prints a row for each number of workloads of 15 pods that share a single namespace and
half as many nodes. The garbage collector has the operator's settings.
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import Final

import msgspec

from bench.plan_world import NOW, Shape, world
from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.pod import Pod
from respread.cluster.state import Change
from respread.planning.audit.auditor import Auditor
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.index import SpreadIndex

NODES: Final = (1_000, 5_000, 15_000)
WORKLOADS_IN_ONE_NAMESPACE: Final = (200, 2_000, 20_000)
CHANGES: Final = 20
GC_THRESHOLDS: Final = (20_000, 20, 100)
"""The values of `respread.lean_process`."""
MIB: Final = 1 << 20


def main() -> None:
    """Measure each size in a new process, so that each has its own peak memory."""
    arguments = _arguments()
    if arguments.one:
        _measure(Shape(*map(int, arguments.one.split(","))), arguments.violated)
        return
    print(
        f"{'nodes':>6} {'pods':>8} {'spaces':>6} {'groups':>7} {'violated':>8} {'moves':>6} {'proven':>6} | "
        f"{'spread':>7} {'view':>7} {'plan':>7} {'all':>7} {'audit':>7} | {'again: unready':>22} {'replaced':>22} | "
        f"{'snapshot':>9} {'peak':>7}"
    )
    for shape in (*map(Shape.ordinary, arguments.nodes), *map(Shape.one_namespace, arguments.one_namespace)):
        subprocess.run(  # noqa: S603 - our own program
            [
                *(sys.executable, "-m", "bench.plan", "--one", ",".join(map(str, shape))),
                *("--violated", str(arguments.violated)),
            ],
            check=True,
        )


def _measure(shape: Shape, violated: float) -> None:
    base = _peak()
    state = world(shape, violated)
    gc.collect()
    held = _peak() - base
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
    setting = PolicySetting((policy,))
    index, predictor = SpreadIndex(), Predictor(ClusterView())
    planner = Planner(predictor)
    start = process_time()
    spread = index.update(state.snapshot)
    spread_done = process_time()
    predictor.view.advance(state.snapshot)
    view_done = process_time()
    plan = planner.plan(state.snapshot, spread, setting, now=NOW)
    plan_done = process_time()
    Auditor().update(state.snapshot, spread, predictor)
    audit_done = process_time()

    def again(change: Callable[[Pod, str], list[Change]]) -> str:
        took: list[float] = []
        for number in range(CHANGES):
            pods = list(state.snapshot.pods.values())
            pod = pods[number * 997 % len(pods)]
            state.apply("pods", change(pod, pods[(number * 997 + 1) % len(pods)].node_name))
            begun = process_time()
            planner.plan(state.snapshot, index.update(state.snapshot), setting, now=NOW)
            took.append(1000 * (process_time() - begun))
        took.sort()
        return f"{took[len(took) // 2]:.1f} ms, at most {took[-1]:.1f}"

    unready = again(_unready)
    replaced = again(_replaced)
    print(
        f"{shape.nodes:>6} {len(state.snapshot.pods):>8} {len(spread.by_namespace):>6} {len(spread.groups):>7} "
        f"{sum(group.violated for group in spread.groups.values()):>8} {len(plan.moves):>6} "
        f"{plan.lower_bound == len(plan.moves)!s:>6} | {spread_done - start:>6.2f}s {view_done - spread_done:>6.2f}s "
        f"{plan_done - view_done:>6.2f}s {plan_done - start:>6.2f}s {audit_done - plan_done:>6.2f}s | "
        f"{unready:>22} {replaced:>22} | "
        f"{held / MIB:>6.0f}MiB {_peak() / MIB:>4.0f}MiB",
        flush=True,
    )


def _unready(pod: Pod, _node: str) -> list[Change]:
    """Return a pod after it has become unready or ready."""
    return [(pod.key, msgspec.structs.replace(pod, ready=not pod.ready))]


def _replaced(pod: Pod, node: str) -> list[Change]:
    """Return the changes when a pod is deleted and its replacement is on another node."""
    new = msgspec.structs.replace(pod, name=f"{pod.name}-new", uid=f"{pod.uid}-new", node_name=node)
    return [(pod.key, None), (new.key, new)]


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=list(NODES))
    parser.add_argument("--one-namespace", type=int, nargs="*", default=list(WORKLOADS_IN_ONE_NAMESPACE))
    parser.add_argument("--violated", type=float, default=0.1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
