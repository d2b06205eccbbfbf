"""The objects of the demo, deployed twice: Deployments with the constraints of the concept page, and a policy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from respread.api.policy import API_VERSION, NAMESPACE_NAME_LABEL, Mode
from respread_sandbox import SandboxApi

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
MAX_SKEW: Final = 1
NAME_PREFIX: Final = "app-"
REPLICAS: Final = 12
FEWEST_REPLICAS, MOST_REPLICAS = 4, 7
"""The numbers of replicas after the scale-down, chosen at random."""
_PARALLEL_REQUESTS: Final = 8


class Side(msgspec.Struct, frozen=True):
    """One of the two namespaces with the same workloads."""

    namespace: str
    """Its policy has the same name."""
    prevents: bool


WITHOUT: Final = Side("without-prevention", prevents=False)
WITH: Final = Side("with-prevention", prevents=True)
SIDES: Final = (WITHOUT, WITH)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The Deployments by name, each with its number of replicas after the scale-down."""

    replicas_after: dict[str, int]

    @classmethod
    def make(cls, deployments: int, seed: int) -> World:
        """Return this many Deployments. The same seed returns the same numbers."""
        dice = random.Random(seed)  # noqa: S311 - numbers to be repeated, not to be secret
        digits = len(str(deployments))
        names = [f"{NAME_PREFIX}{number:0{digits}}" for number in range(1, deployments + 1)]
        return cls(replicas_after={name: dice.randint(FEWEST_REPLICAS, MOST_REPLICAS) for name in names})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the Deployments' names."""
        return tuple(self.replicas_after)

    @property
    def pods_before(self) -> int:
        """The number of pods of one side before the scale-down."""
        return len(self.replicas_after) * REPLICAS

    @property
    def pods_after(self) -> int:
        """The number of pods of one side after it."""
        return sum(self.replicas_after.values())

    def deploy(self, api: SandboxApi) -> None:
        """Create the Deployments of both sides. Their pods are created later."""
        paths = [f"/apis/apps/v1/namespaces/{side.namespace}/deployments" for side in SIDES]
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
            made = [pool.submit(api.request, "POST", path, deployment(name)) for name in self.names for path in paths]
            for each in made:
                each.result()

    def scale_down(self, api: SandboxApi) -> Iterator[None]:
        """Scale the Deployments down, one of each side per step."""
        for name, replicas in self.replicas_after.items():
            for side in SIDES:
                path = f"/apis/apps/v1/namespaces/{side.namespace}/deployments/{name}/scale"
                api.request("PATCH", path, {"spec": {"replicas": replicas}})
            yield


def deployment(name: str) -> dict[str, Any]:
    """Return a Deployment with a hard constraint over zones and a soft one over hosts."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [
                        {
                            "name": "app",
                            "image": "simulated",
                            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                        }
                    ],
                    "topologySpreadConstraints": [
                        _constraint(ZONE, "DoNotSchedule", labels),
                        _constraint(HOSTNAME, "ScheduleAnyway", labels),
                    ],
                },
            },
        },
    }


def _constraint(topology_key: str, when_unsatisfiable: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "maxSkew": MAX_SKEW,
        "topologyKey": topology_key,
        "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": {"matchLabels": labels},
    }


def policy(side: Side, mode: Mode) -> dict[str, Any]:
    """Return a side's policy, with shorter waiting times than a real cluster should have."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterRebalancePolicy",
        "metadata": {"name": side.namespace},
        "spec": {
            "mode": mode,
            "priority": 100,
            "namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: side.namespace}},
            "prevention": {"podDeletionCost": "Enabled" if side.prevents else "Disabled"},
            "quietPeriod": "2s",
            "victims": {"minAge": "1s"},
            "limits": {"inFlight": 5, "inFlightPerNamespace": 5},
        },
    }
