"""What a plan costs: from scratch, and again after one pod has changed.

    python -m bench.plan [--nodes 5000] [--violated 0.1]

prints a row for each number of nodes, with 30 pods a node and a workload (and so a violated group in ten) for each.
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
from time import process_time
from typing import Final

import msgspec

from bench.plan_world import NOW, world
from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod
from respread.planning.planner import Planner, PolicySetting
from respread.scheduling.cluster_view import ClusterView
from respread.scheduling.predictor import Predictor
from respread.spread.index import SpreadIndex

SIZES: Final = (1_000, 5_000, 15_000)
CHANGES: Final = 20
MIB: Final = 1 << 20


def main() -> None:
    """Measure each size in a process of its own, so that peak memory is its own too."""
    arguments = _arguments()
    if arguments.one:
        _measure(arguments.nodes[0], arguments.violated)
        return
    print(
        f"{'nodes':>6} {'pods':>8} {'groups':>7} {'violated':>8} {'moves':>6} {'proven':>6} | {'spread':>7} "
        f"{'view':>7} {'plan':>7} {'all':>7} | {'re-plan after a pod':>20} | {'snapshot':>9} {'peak':>7}"
    )
    for nodes in arguments.nodes:
        subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "bench.plan", "--one", "--nodes", str(nodes), "--violated", str(arguments.violated)],
            check=True,
        )


def _measure(nodes: int, violated: float) -> None:
    base = _peak()
    state = world(nodes, violated)
    gc.collect()
    held = _peak() - base
    gc.freeze()
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
    again = []
    for number in range(CHANGES):
        key, pod = _changed(list(state.snapshot.pods.values())[number * 997])
        state.apply("pods", [(key, pod)])
        begun = process_time()
        spread = index.update(state.snapshot)
        planner.plan(state.snapshot, spread, setting, now=NOW)
        again.append(process_time() - begun)
    again.sort()
    print(
        f"{nodes:>6} {len(state.snapshot.pods):>8} {len(spread.groups):>7} "
        f"{sum(group.violated for group in spread.groups.values()):>8} {len(plan.moves):>6} "
        f"{plan.lower_bound == len(plan.moves)!s:>6} | {spread_done - start:>6.2f}s {view_done - spread_done:>6.2f}s "
        f"{plan_done - view_done:>6.2f}s {plan_done - start:>6.2f}s | "
        f"{1000 * again[len(again) // 2]:>7.1f} ms, at most {1000 * again[-1]:.1f} ms | "
        f"{held / MIB:>6.0f}MiB {_peak() / MIB:>4.0f}MiB",
        flush=True,
    )


def _changed(pod: Pod) -> tuple[ObjectKey, Pod]:
    """Return a pod as it is when it has become unready, or ready."""
    return pod.key, msgspec.structs.replace(pod, ready=not pod.ready)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--violated", type=float, default=0.1)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
