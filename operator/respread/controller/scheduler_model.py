"""The assumed schedulers of the cluster: their configuration, their version, and the parts that matter now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Self

import msgspec

from respread.api.policy import Policy
from respread.cluster.state import ClusterSnapshot
from respread.controller.owner_selectors import OwnerSelectors
from respread.handlers.informer import Informers
from respread.kube.requests import NoResponseError, Requests
from respread.kube.retry import Retry, RetryDelays
from respread.planning.audit.auditor import Auditor
from respread.planning.planning_model import PlanningModel
from respread.planning.victims.policies import PolicyIndex
from respread.scheduling.configuration import SchedulerConfiguration, of_version
from respread.scheduling.default_selector import SelectingOwner
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.index import Spread
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

ASK_AGAIN_SECONDS: Final = 600.0
"""A cluster may be upgraded while Respread runs."""


class SchedulerModel(PlanningModel):
    """Finds spread groups, plans for them, audits them. It is rebuilt when assumptions about the schedulers change."""

    __slots__ = ("_configuration", "_of_spread", "_of_victims", "_owners", "_version", "auditor")

    def __init__(
        self,
        configuration: SchedulerConfiguration | None = None,
        version: ServerVersion | None = None,
        owners: OwnerSelectors | None = None,
    ) -> None:
        """Create it.

        Args:
            configuration: of the cluster's schedulers; by default, the default configuration.
            version: returns the cluster's; without it, no version-specific bugs are assumed.
            owners: reads the selectors of owners; without it, default constraints that depend on one are unknown.
        """
        self._configuration = SchedulerConfiguration() if configuration is None else configuration
        self._version = version
        self._owners = owners
        self._of_spread: frozenset[SelectingOwner] = frozenset()
        self._of_victims: frozenset[SelectingOwner] = frozenset()
        self.auditor = Auditor(foresees_room=False)
        super().__init__(Predictor(ClusterView(), self._configuration))

    @classmethod
    def of_cluster(
        cls,
        configuration: SchedulerConfiguration,
        requests: Requests,
        informers: Informers,
        clock: Callable[[], float],
    ) -> Self:
        """Return a model that reads the cluster's version and what it needs of owners, while `run` runs."""
        version = ServerVersion(requests, partial(informers.changes.notify, "version"))
        return cls(configuration, version, OwnerSelectors(requests, informers, clock))

    async def run(self) -> None:
        """Read until cancelled."""
        await asyncio.gather(*(each.run() for each in (self._version, self._owners) if each is not None))

    def follow(self, policies: Iterable[Policy]) -> None:
        """Use the constraints that matter to these policies, and the bugs of the cluster's version."""
        configuration = self._configuration
        if self._version is not None:
            configuration = of_version(configuration, self._version.version)
        self.assume(configuration, policies)

    def plan_depends_on(self, owners: frozenset[SelectingOwner]) -> None:
        """Start reading the controllers on which the last plan depends (`Plan.owners`)."""
        self._of_victims = owners
        if self._owners is not None:
            self._owners.want(self._of_spread, owners)

    def learn(self, spread: Spread, snapshot: ClusterSnapshot, policies: PolicyIndex) -> bool:
        """Start reading what is needed and unknown. Return whether everything has been requested once."""
        asked = self._version is None or self._version.asked
        if self._owners is None:
            return asked
        self._of_spread = frozenset(_owners_needed(spread, snapshot, policies))
        return self._owners.want(self._of_spread, self._of_victims) and asked


def _owners_needed(spread: Spread, snapshot: ClusterSnapshot, policies: PolicyIndex) -> Iterator[SelectingOwner]:
    """Yield the owners whose selectors are needed for default constraints in namespaces of policies."""
    for name, owners in spread.owners.items():
        if not policies.in_namespace(name, snapshot.namespaces).is_empty:
            yield from owners


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class ServerVersion:
    """The API server's version, requested at intervals."""

    __slots__ = ("_on_change", "_requests", "_retry", "asked", "version")

    def __init__(self, requests: Requests, on_change: Callable[[], None]) -> None:
        """Start without a version.

        Args:
            requests: sends requests.
            on_change: called when it changes, and after the first answer.
        """
        self._requests = requests
        self._on_change = on_change
        self._retry = Retry(RetryDelays(greatest_seconds=ASK_AGAIN_SECONDS))
        self.version = ""
        """Such as `v1.36.3`; empty while it is unknown."""
        self.asked = False
        """Whether it was requested at all, with or without success."""

    async def run(self) -> None:
        """Request it until cancelled."""
        while True:
            seconds = await self._ask()
            await asyncio.sleep(seconds)

    async def _ask(self) -> float:
        """Request it once, and return for how many seconds the answer is used."""
        found, fault = "", ""
        try:
            response = await self._requests.send("GET", "/version", {})
            if response.succeeded:
                found = msgspec.json.decode(response.body, type=_Version).git_version
            else:
                fault = f"the answer was {response.status_code}"
        except NoResponseError as error:
            fault = error.message
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            fault = str(error)
        if not self.asked or (found and found != self.version):
            self._on_change()
        self.asked = True
        if not found:
            seconds = self._retry.failed()
            _log.warning(
                "The cluster's version is not known; asking again", fault=fault, wait_seconds=round(seconds, 1)
            )
            return seconds
        self._retry.succeeded()
        self.version = found
        return ASK_AGAIN_SECONDS
