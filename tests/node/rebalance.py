"""A rebalance of pods on simulated nodes that takes long enough for something to happen in the middle."""

from __future__ import annotations

import json
from typing import Any, Final

from respread_sandbox import Sandbox
from respread_sandbox.nodes import READY_AFTER_ANNOTATION
from tests.integration.operator_process import policy
from tests.node.workloads import ZONES, create, evicted, is_even, leave_in_zone, on_simulated_nodes, wait_until_only_in
from tests.processes import wait_until

POLICY: Final = "test"
_POLICY_PATH: Final = f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{POLICY}"
_APPS: Final = tuple(f"web-{number}" for number in range(6))
_LEFT: Final = 4
"""The pods of each app, all in one zone."""
FEWEST_EVICTIONS: Final = len(_APPS) * 2
_LIMITS: Final = {"inFlight": 100, "inFlightPerNamespace": 100, "inFlightPerNode": 100, "inFlightPerWorkload": 1}
"""One pod of each app at a time, each of which takes two seconds to be Ready."""


class Rebalance:
    """Deployments with all pods in one zone, and the policy that has them restored."""

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        """Create the Deployments. Nothing is evicted before `begin`."""
        self._sandbox = sandbox
        self._namespace = namespace
        slowly = {READY_AFTER_ANNOTATION: "2"}
        create(sandbox, namespace, [on_simulated_nodes(app, 3 * _LEFT, slowly) for app in _APPS])
        for app in _APPS:
            assert leave_in_zone(sandbox, namespace, app, ZONES[0]) == _LEFT
        for app in _APPS:
            wait_until_only_in(sandbox, namespace, app, ZONES[0])

    def begin(self) -> None:
        """Apply the policy, and wait until evictions begin."""
        self._sandbox.apply(json.dumps(policy(POLICY, limits=_LIMITS)))
        wait_until(lambda: self.evicted() > 0, "the first eviction")
        assert self.evicted() < FEWEST_EVICTIONS

    def evicted(self) -> int:
        """Return how many evictions were made so far."""
        return evicted(self._sandbox, self._namespace)

    def wait_until_over(self) -> None:
        """Wait until all is restored, and until Respread says so."""

        def over() -> bool:
            summary: dict[str, Any] = self._sandbox.api.get(_POLICY_PATH).get("status", {}).get("summary", {})
            says = summary.get("groups", 0) >= len(_APPS) and (summary["violated"], summary["inFlight"]) == (0, 0)
            return says and all(is_even(self._sandbox, self._namespace, app, ZONES) for app in _APPS)

        wait_until(over, f"the pods of {self._namespace} to be spread again")
