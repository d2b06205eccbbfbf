"""The sides of a comparison as processes, each configured for speed, and their cost."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import yaml

import respread
from bench.busy_plain import Orders
from bench.limits import AtOnce
from bench.peer import find_or_build
from respread_sandbox import Sandbox
from respread_sandbox.pod_watch import WatchedPod
from tests.integration.operator_process import OperatorProcess, policy
from tests.integration.prevention_cluster import COST, PREVENTS, RIGHT

Side = Literal["respread", "prevention", "descheduler", "evictions"]
OURS: Final = ("respread", "prevention")
"""The sides that are Respread; of them, `prevention` also gives pods their costs."""
SIDES: Final[dict[str, Side]] = {"respread": "respread", "peer": "descheduler"}
"""The names of the sides on the command line."""

FAST_LIMITS: Final = {"inFlight": 50, "inFlightPerNamespace": 50, "inFlightPerNode": 50, "inFlightPerWorkload": "100%"}
HARD: Final = ("DoNotSchedule",)
HARD_AND_SOFT: Final = ("DoNotSchedule", "ScheduleAnyway")
POLICY: Final = "bench"
OWN_NAMESPACE: Final = "respread-system"
POLICIES: Final = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"
QUIET_PERIOD_SECONDS: Final = 2.0
PEER_INTERVAL_SECONDS: Final = 5
PEER_CYCLE_ENDED: Final = "Number of evictions/requests"
PEER_LOG: Final = "descheduler.log"
"""The path of the side's log, relative to the directory."""
# Without these options it makes 5 requests a second, which would be its only limit.
PEER_CLIENT_LIMITS: Final = ("--client-connection-qps=100", "--client-connection-burst=200")


class Cost(NamedTuple):
    """The resources used by a process and its children."""

    cpu_seconds: float
    peak_mib: float


def cost_of(pid: int) -> Cost:
    """Return the cost of a process and its children, including those that have ended; zero if it does not exist."""
    seconds, mib = 0.0, 0.0
    for each in processes_of(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime
            status = Path(f"/proc/{each}/status").read_text(encoding="utf-8").splitlines()
            mib += next((int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:")), 0.0)
    return Cost(seconds, mib)


def processes_of(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text(encoding="utf-8").split():
                yield from processes_of(int(child))


@contextmanager
def running(
    side: Side,
    sandbox: Sandbox,
    directory: Path,
    *,
    limits: Mapping[str, Any],
    constraints: Sequence[str] = HARD,
    peer_client_limits: bool = True,
    evicts: bool = True,
    hurried: bool = True,
) -> Iterator[subprocess.Popen[Any]]:
    """Run one side until the end of the block.

    Args:
        side: the side.
        sandbox: its cluster.
        directory: for its log and its configuration.
        limits: the limits of Respread's policy; empty for its defaults.
        constraints: whether it restores constraints with `DoNotSchedule`, `ScheduleAnyway`, or both.
        peer_client_limits: whether the peer's limit of 5 requests a second is raised.
        evicts: whether it may evict. If not, Respread is in DryRun, and the peer has a limit of no evictions. The
            peer's own dry run would copy all objects first.
        hurried: whether Respread's policy has a quiet period of 2 s instead of the default.

    The side `evictions` waits for `order_evictions`.
    """
    if side == "evictions":
        plain_command = [sys.executable, "-m", "bench.busy_plain", str(sandbox.kubeconfig)]
        with subprocess.Popen(plain_command, stdin=subprocess.PIPE) as plain:  # noqa: S603 - our own
            try:
                yield plain
            finally:
                plain.kill()
        return
    if side in OURS:
        # The limits of the default policy of the manifests would also apply.
        sandbox.kubectl("delete", "clusterrebalancepolicies", "--all")
        made = bench_policy(limits, constraints, evicts=evicts, hurried=hurried)
        if side == "prevention":
            sandbox.apply(RIGHT)
            made["spec"] |= PREVENTS
        sandbox.apply(yaml.safe_dump(made))
        compileall.compile_dir(Path(respread.__file__).parent, quiet=1)  # as in an installation
        with OperatorProcess(sandbox, directory) as operator:
            yield operator.process
        return
    file = directory / "descheduler-policy.yaml"
    no_evictions = {} if evicts else {"maxNoOfPodsToEvictTotal": 0}
    file.write_text(yaml.safe_dump(_peer_policy(constraints) | no_evictions), encoding="utf-8")
    command = [
        str(find_or_build()),
        f"--kubeconfig={sandbox.kubeconfig}",
        f"--policy-config-file={file}",
        f"--descheduling-interval={PEER_INTERVAL_SECONDS}s",
        "--secure-port=0",
        "--v=1",
        *(PEER_CLIENT_LIMITS if peer_client_limits else ()),
    ]
    with (directory / PEER_LOG).open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - the program that was built for it
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def order_evictions(process: subprocess.Popen[Any], victims: Sequence[WatchedPod], at_once: AtOnce | None) -> None:
    """Tell the side `evictions` which pods to evict, once.

    Args:
        process: the side.
        victims: the pods.
        at_once: how many it may evict at once; None for all.
    """
    if process.stdin is None:
        raise AssertionError("it was asked for a pipe")
    process.stdin.write(msgspec.json.encode(Orders(list(victims), at_once)))
    process.stdin.close()


def has_looked(side: Side, sandbox: Sandbox, directory: Path) -> bool:
    """Return whether a side that was started has seen the whole cluster once, and `prevention` gave all pods costs.

    `evictions` does not look at it.
    """
    if side in OURS:
        found = sandbox.api.get(f"{POLICIES}/{POLICY}")
        looked = bool(found.get("status", {}).get("conditions"))
        return looked and (side == "respread" or _all_ranked(sandbox))
    return side == "evictions" or PEER_CYCLE_ENDED in (directory / PEER_LOG).read_text(encoding="utf-8")


def stored_policy(sandbox: Sandbox, limits: Mapping[str, Any], *, hurried: bool = True) -> dict[str, Any]:
    """Return the spec of Respread's policy, with all defaults, as the API server would store it."""
    asked = bench_policy(limits, hurried=hurried) | {"metadata": {"generateName": POLICY}}
    spec: dict[str, Any] = sandbox.api.request("POST", f"{POLICIES}?dryRun=All", asked)["spec"]
    return spec


def bench_policy(
    limits: Mapping[str, Any], constraints: Sequence[str] = HARD, *, evicts: bool = True, hurried: bool = True
) -> dict[str, Any]:
    """Return Respread's policy; the arguments are those of `running`."""
    spec = {"limits": dict(limits), "constraints": {"whenUnsatisfiable": list(constraints)}}
    made = policy(POLICY, mode="Enforce" if evicts else "DryRun", **spec)
    made["spec"]["quietPeriod"] = f"{QUIET_PERIOD_SECONDS:g}s"
    if not hurried:
        del made["spec"]["quietPeriod"]
    return made


def _all_ranked(sandbox: Sandbox) -> bool:
    pods = [pod["metadata"] for pod in sandbox.api.get("/api/v1/pods")["items"]]
    return all(COST in pod.get("annotations", {}) for pod in pods if pod["namespace"] != OWN_NAMESPACE)


def _peer_policy(constraints: Sequence[str]) -> dict[str, Any]:
    """Return the descheduler's policy: this one plugin, no limits on evictions, and `nodeFit` as in its README."""
    plugin, evictor = "RemovePodsViolatingTopologySpreadConstraint", "DefaultEvictor"
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "spread",
                "pluginConfig": [
                    {"name": plugin, "args": {"constraints": list(constraints), "topologyBalanceNodeFit": True}},
                    {"name": evictor, "args": {"nodeFit": True}},
                ],
                "plugins": {"balance": {"enabled": [plugin]}},
            }
        ],
    }
