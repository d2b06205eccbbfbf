"""Random faults in random clusters, from a seed: `python -m tests.faults.soak --seconds 600 --seed 1`.

Two replicas work through proxies that delay, lose, truncate, corrupt and invent answers. Meanwhile the replicas are
killed and frozen, their tokens change, and API server and etcd crash. The result is judged independently: by a separate
watch of Ready pods, and by arithmetic that needs no planner. Each round has plain workloads and some that are hard to
move (`hardships`). The statuses of policies are overwritten.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from respread_sandbox import NodeShape, Sandbox, SandboxOptions
from tests.faults.hardships import Hardship, hardships, prepare, random_status, write_status
from tests.faults.operators import Replica
from tests.faults.proxy import Dice, FaultProxy, no_fault
from tests.faults.rounds import (
    PLAIN_NODES,
    POLICY,
    Workload,
    balanced,
    close_zones,
    create,
    enforce,
    look_at,
    outage,
    patiently,
    random_workloads,
    remove,
    remove_namespaces,
    set_mode,
    wait_for,
    zones_of_nodes,
)
from tests.faults.watcher import PodWatcher
from tests.integration.operator_process import install

ROUND_SECONDS = 45.0
"""The longest time for which a cluster is exposed to faults."""
PEACE_SECONDS = 240.0
"""The longest time for a cluster from then on. Respread waits for an eviction without an answer, with back-off."""


PLACED_SECONDS = 60.0
"""The longest time in which pods terminate and get nodes after the spread has been restored."""
SEEN_SECONDS = 2.0
"""The time for the operators to observe the cluster before zones are opened and faults begin. Otherwise a pod that is
created after an eviction may take the room of the replacement."""
QUIET_PERIOD = "1s"


OPTIONS = SandboxOptions(nodes_per_zone=(3, 3, 3), shape=NodeShape(labels=PLAIN_NODES))


class Findings(NamedTuple):
    """The result of a soak."""

    faults: Counter[str]
    rounds: int
    evictions: int
    fewest: int
    """The number of evictions that could restore the spread."""
    too_many: int
    """The evictions of all workloads beyond the maximum that is needed, wherever the scheduler places replacements."""
    breaches: int
    """The moments at which a budget was violated."""
    lost: int
    """The pods that were missing or not Ready at the end."""
    unmet: int
    """The constraints violated at the end."""
    pending: int
    """The pods without a node at the end that would have one if nothing had been evicted."""

    def __str__(self) -> str:
        faults = "\n".join(f"  {kind:<16}{number:>6}" for kind, number in sorted(self.faults.items()))
        return (
            f"faults injected: {self.faults.total()}\n{faults}\n"
            f"clusters restored: {self.rounds}, with {self.evictions} evictions of at least {self.fewest}\n"
            f"evictions beyond those needed: {self.too_many}\n"
            f"budget violations: {self.breaches}\n"
            f"pods lost: {self.lost}\n"
            f"constraints unmet: {self.unmet}\n"
            f"pods left Pending: {self.pending}"
        )

    @property
    def clean(self) -> bool:
        return not (self.too_many or self.breaches or self.lost or self.unmet or self.pending)


class Soak:
    """A soak on an existing sandbox."""

    def __init__(self, sandbox: Sandbox, directory: Path, seed: int, say: Callable[[str], None]) -> None:
        self._sandbox = sandbox
        self._directory = directory
        self._chance = random.Random(seed)
        self._dice = Dice(seed)
        self._say = say
        self._crashes: Counter[str] = Counter()
        self._findings = Counter[str]()

    def run(self, seconds: float) -> Findings:
        """Run for a time, and then until the current cluster is restored."""
        deadline = time.monotonic() + seconds
        rounds = 0
        with ExitStack() as stack:
            proxies = [stack.enter_context(FaultProxy(self._sandbox)) for _ in range(2)]
            watcher = stack.enter_context(PodWatcher(self._sandbox))
            replicas = [
                Replica(self._sandbox, proxy, self._directory, name, "--leader-election", "--lease-seconds", "4")
                for proxy, name in zip(proxies, ("one", "two"), strict=True)
            ]
            for replica in replicas:
                stack.enter_context(replica)
            while time.monotonic() < deadline:
                rounds += 1
                self._round(rounds, proxies, replicas, watcher, deadline)
            evicted = watcher.evicted_by_now().total()
            faults = sum((proxy.counts for proxy in proxies), self._crashes.copy())
        found = self._findings
        return Findings(
            faults,
            rounds,
            evicted,
            found["fewest"],
            found["too many"],
            len(watcher.breaches),
            found["lost"],
            found["unmet"],
            found["pending"],
        )

    def _round(
        self, number: int, proxies: list[FaultProxy], replicas: list[Replica], watcher: PodWatcher, deadline: float
    ) -> None:
        workloads = random_workloads(f"soak-{number}", self._chance)
        hard = hardships(self._sandbox, number, self._chance)
        close_zones(self._sandbox, closed=True)
        create(
            self._sandbox,
            watcher,
            workloads,
            self._chance,
            terminate_after_seconds=(0, 0, 1, 4),
            node_selector=PLAIN_NODES,
        )
        for each in hard:
            each.create()
        time.sleep(SEEN_SECONDS)
        self._open_zones()
        for proxy in proxies:
            proxy.choose = self._dice
        at_least = time.monotonic() + 8
        until = max(at_least, min(deadline, time.monotonic() + ROUND_SECONDS))  # the setup may have taken long
        while time.monotonic() < until:
            self._strike(proxies, replicas)
            if time.monotonic() > at_least and balanced(self._sandbox, workloads):
                break
        for proxy in proxies:
            proxy.choose = no_fault
        self._judge(number, workloads, hard, watcher, replicas)
        remove(self._sandbox, watcher, workloads)
        remove_namespaces(self._sandbox, [each.namespace for each in hard])

    def _open_zones(self) -> None:
        """Open the zones, and stop the scheduler for a moment, so that pods stay Pending."""
        set_mode(self._sandbox, "DryRun")
        close_zones(self._sandbox, closed=False)
        seconds = self._chance.choice((0, 2, 5))
        if seconds:
            self._sandbox.freeze_component("kube-scheduler")
        try:
            set_mode(self._sandbox, "Enforce")
            time.sleep(seconds)
        finally:
            if seconds:
                self._sandbox.thaw_component("kube-scheduler")

    def _judge(
        self,
        number: int,
        workloads: list[Workload],
        hard: Sequence[Hardship],
        watcher: PodWatcher,
        replicas: list[Replica],
    ) -> None:
        started = time.monotonic()

        def restored() -> bool:
            self._start(replicas)
            return balanced(self._sandbox, workloads)

        try:
            wait_for(restored, "the spread to be restored", PEACE_SECONDS)
        except AssertionError as error:
            log = self._sandbox.log("kube-scheduler").read_text(encoding="utf-8")
            self._say(f"round {number}: {error}; the scheduler's log ends with\n{log[-2000:]}")
        self._judge_hardships(number, hard, watcher)
        time.sleep(1.5)  # for late events
        evicted = watcher.evicted_by_now()
        for each in workloads:
            made = evicted[each.namespace, each.name]
            self._findings["fewest"] += each.fewest_evictions
            self._findings["too many"] += max(0, made - each.most_evictions)
            seen = look_at(self._sandbox, each, zones_of_nodes(self._sandbox))
            self._findings["lost"] += seen.lost
            self._findings["unmet"] += seen.unmet
            if not each.fewest_evictions <= made <= each.most_evictions:
                self._say(f"round {number}: {each} took {made} evictions")
        sizes = ", ".join(str(each.replicas) for each in workloads)
        self._say(f"round {number}: Deployments of {sizes}; in order after {time.monotonic() - started:.0f} s of peace")

    def _judge_hardships(self, number: int, hard: Sequence[Hardship], watcher: PodWatcher) -> None:
        """Count pending and lost pods, after the pods had time to terminate and to get nodes."""
        for each in hard:
            deadline = time.monotonic() + PLACED_SECONDS
            while (left := each.left_behind()).total() and time.monotonic() < deadline:
                time.sleep(0.5)
            if left.total():
                self._say(
                    f"round {number}: {each.namespace} has {dict(left)}; {_events(self._sandbox, each.namespace)}"
                )
            self._findings.update(left)
            evicted = watcher.evicted_by_now()
            for app, most in each.most_evictions().items():
                made = evicted[each.namespace, app]
                if made > most:
                    self._say(f"round {number}: {each.namespace}/{app} took {made} evictions, and {most} would do")
                self._findings["too many"] += max(0, made - most)

    def _strike(self, proxies: list[FaultProxy], replicas: list[Replica]) -> None:
        """Do something to a process, or wait for a while."""
        replica = self._chance.choice(replicas)
        what = self._chance.choices(
            ("nothing", "kill -9", "freeze", "stop", "token", "kube-apiserver", "etcd", "status"),
            (8, 3, 2, 1, 1, 1, 1, 2),
        )[0]
        if what != "nothing":
            self._crashes[what] += 1
        match what:
            case "kill -9":
                replica.kill()
            case "stop" if replica.runs:
                replica.stop()
            case "freeze" if replica.runs:
                replica.freeze()
                time.sleep(self._chance.uniform(0.1, 7))
                replica.thaw()
            case "token":
                for proxy, each in zip(proxies, replicas, strict=True):
                    proxy.valid_token = patiently(each.rotate_token)
            case "status":
                write_status(self._sandbox, POLICY, random_status(self._chance))
            case "kube-apiserver" | "etcd":
                outage(self._sandbox, what, self._chance.uniform(0.1, 2))
        time.sleep(self._chance.uniform(0.1, 1.5))
        self._start(replicas)

    def _start(self, replicas: list[Replica]) -> None:
        """Start every operator that does not run, as Kubernetes does."""
        for each in replicas:
            if not each.runs:
                if each.ended_by_itself:
                    self._crashes["(ended by itself)"] += 1
                each.start()


def _events(sandbox: Sandbox, namespace: str) -> str:
    """Return the Events of a namespace about evicted or unschedulable pods."""
    found = patiently(lambda: sandbox.api.get(f"/api/v1/namespaces/{namespace}/events"))["items"]
    telling = (event for event in found if event["reason"] in {"Preempted", "FailedScheduling", "Evicted"})
    return "; ".join(f"{event['involvedObject']['name']}: {event['message']}" for event in telling)


def soak(seconds: float, seed: int, say: Callable[[str], None] = print, keep: str = "") -> Findings:
    """Run a soak in its own sandbox, and keep the operators' logs in a directory if one is given."""
    with (
        contextlib.nullcontext(keep) if keep else tempfile.TemporaryDirectory() as directory,
        Sandbox.start(OPTIONS) as sandbox,
    ):
        install(sandbox)
        prepare(sandbox)
        enforce(sandbox, quietPeriod=QUIET_PERIOD)
        return Soak(sandbox, Path(directory), seed, say).run(seconds)


def main() -> int:
    """Run from the command line. The exit code is 1 if any of the counts is not 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--logs", default="", help="a directory to keep the operators' logs in")
    options = parser.parse_args()
    if options.logs:
        Path(options.logs).mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, {options.seconds:g} s", flush=True)
    findings = soak(options.seconds, options.seed, lambda line: print(line, flush=True), options.logs)
    print(findings)
    return 0 if findings.clean else 1


if __name__ == "__main__":
    sys.exit(main())
