"""The assumed schedulers of the cluster: configuration, version, the parts that matter now, and selectors of owners.

The scheduler's default constraints count pods by the selector of their owner, and who controls the owner decides
whether its pods may be evicted. There may be hundreds of thousands of owners, so they are not watched. Respread reads
those whose pods have default constraints that matter to some policy, and those of pods that might be evicted, each
once, because the selectors of `apps/v1` never change. A new owner has a name or a UID that was never read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from math import inf
from typing import Final, NamedTuple, Self, cast

import msgspec

from respread.api.policy import Policy
from respread.cluster.decode.decoder import KINDS
from respread.cluster.objects import DecodeError, Workload
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import full_name
from respread.handlers.informer import Informers
from respread.kube.requests import Meaning, NoResponseError, Requests
from respread.kube.retry import Retry, WokenLoop
from respread.planning.audit.auditor import Auditor
from respread.planning.planner import PlanningModel
from respread.planning.victims.policies import PolicyIndex
from respread.scheduling.configuration import SchedulerConfiguration, SelectingOwner, of_version
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.index import Spread
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

ASK_AGAIN_SECONDS: Final = 600.0
"""A cluster may be upgraded while Respread runs."""


class SchedulerModel(PlanningModel):
    """Finds spread groups, plans for them, audits them. It is rebuilt when assumptions about the schedulers change."""

    def __init__(
        self,
        configuration: SchedulerConfiguration | None = None,
        version: ServerVersion | None = None,
        owners: OwnerSelectors | None = None,
    ) -> None:
        """Without a version, no version-specific bugs are assumed.

        Without `owners`, default constraints that depend on the selector of one are unknown.
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
        cls, configuration: SchedulerConfiguration, requests: Requests, informers: Informers, clock: Callable[[], float]
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
        self._of_spread = frozenset(  # for default constraints, in namespaces of policies
            owner
            for name, owners in spread.owners.items()
            if not policies.in_namespace(name, snapshot.namespaces).is_empty
            for owner in owners
        )
        return self._owners.want(self._of_spread, self._of_victims) and asked


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class ServerVersion:
    """The API server's version, requested at intervals."""

    def __init__(self, requests: Requests, on_change: Callable[[], None]) -> None:
        """Start without a version. `on_change` is called when it changes, and after the first answer."""
        self._requests = requests
        self._on_change = on_change
        self._retry = Retry(greatest_seconds=ASK_AGAIN_SECONDS)
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


AT_ONCE: Final = 8
"""How many are read at the same time. Thousands take seconds, and are no load for the API server."""
_BATCH: Final = 200
"""After this many, the control loop is notified of the results."""
READ_AGAIN_SECONDS: Final = 300.0
"""How long an answer is used that may change: the selector of a ReplicationController, that an owner is gone, or that
it can't be read."""
RESOURCES: Final = ("replicasets", "statefulsets", "replicationcontrollers")
_UNCHANGING: Final = ("replicasets", "statefulsets")


class _Answer(NamedTuple):
    workload: Workload | None
    """None if unknown."""
    again_seconds: float
    """When to read it again."""
    well: bool = True
    """Whether the API server is expected to answer other requests."""


class OwnerSelectors:
    """Keeps the wanted owners in the cluster state, with only what never changes: selectors, their own controllers."""

    def __init__(self, requests: Requests, informers: Informers, clock: Callable[[], float]) -> None:
        """Start without owners. Informers are notified when they are read."""
        self._requests = requests
        self._informers = informers
        self._clock = clock
        self._retry = Retry(least_seconds=1.0)
        self._wanted: frozenset[SelectingOwner] = frozenset()
        self._due_at: dict[SelectingOwner, float] = {}
        """When to read the owners again."""
        self._troubled: set[str] = set()
        """The resources whose last owner could not be read."""
        self._loop = WokenLoop(lambda: _log.exception("Reading owners' selectors failed; it is tried again"))

    def want(self, owners: Iterable[SelectingOwner], besides: AbstractSet[SelectingOwner] = frozenset()) -> bool:
        """Set which owners are needed now, and return whether all of `owners` have been requested once.

        Spread groups depend on `owners`, and only plans on those `besides`. Owners in neither are forgotten.
        """
        needed = frozenset(owners)
        wanted = needed | besides
        if wanted != self._wanted:
            self._wanted = wanted
            self._due_at = {owner: due_at for owner, due_at in self._due_at.items() if owner in wanted}
            self._forget_others()
            self._loop.wake()
        return needed <= self._due_at.keys()

    async def run(self) -> None:
        """Read the wanted owners until cancelled."""
        await self._loop.run(self._step)

    async def _step(self) -> float:
        """Read the owners that are due, and return for how many seconds none will be."""
        now = self._clock()
        due = [owner for owner in self._wanted if self._due_at.get(owner, now) <= now]
        for start in range(0, len(due), _BATCH):
            if not await self._read(due[start : start + _BATCH]):
                await asyncio.sleep(self._retry.failed())  # also if others are wanted meanwhile
                return 0.0
        self._retry.succeeded()
        return min(self._due_at.values(), default=inf) - self._clock()

    async def _read(self, owners: Iterable[SelectingOwner]) -> bool:
        """Read some owners, notify the control loop, and return whether the API server can answer more."""
        left, answers = iter(owners), dict[SelectingOwner, _Answer]()

        async def read_some() -> None:
            for owner in left:
                answers[owner] = answer = await self._ask(owner)
                if not answer.well:
                    break

        await asyncio.gather(*(read_some() for _ in range(AT_ONCE)))
        now = self._clock()
        wanted = {owner: answer for owner, answer in answers.items() if owner in self._wanted}
        for resource in RESOURCES:
            self._informers.state.apply(
                resource,
                [
                    (owner.key, answer.workload)
                    for owner, answer in wanted.items()
                    if owner.resource == resource and answer.workload is not None
                ],
            )
        self._due_at.update({owner: now + answer.again_seconds for owner, answer in wanted.items()})
        self._informers.changes.notify("owners")
        return all(answer.well for answer in answers.values())

    async def _ask(self, owner: SelectingOwner) -> _Answer:
        try:
            path = f"{KINDS[owner.resource].path_in_namespace}/{{name}}"
            response = await self._requests.send("GET", path, owner.key._asdict())
            if response.succeeded:
                read = self._informers.decoder.decode_object(owner.resource, response.body)
                self._tell(owner, "")
                again_seconds = inf if owner.resource in _UNCHANGING else READ_AGAIN_SECONDS
                return _Answer(_unchanging(cast("Workload", read)), again_seconds)
        except DecodeError as error:
            self._tell(owner, str(error))
            return _Answer(None, READ_AGAIN_SECONDS)
        except NoResponseError as error:
            self._tell(owner, error.message)
            return _Answer(None, 0.0, well=False)
        if response.meaning is Meaning.ABSENT:
            nothing = Workload(namespace=owner.key.namespace, name=owner.key.name)
            return _Answer(nothing, READ_AGAIN_SECONDS)  # The meaning for the scheduler.
        self._tell(owner, response.refusal)
        if response.meaning is Meaning.FORBIDDEN:
            return _Answer(None, READ_AGAIN_SECONDS)
        return _Answer(None, 0.0, well=False)

    def _tell(self, owner: SelectingOwner, fault: str) -> None:
        """Log a fault, once for each kind until one of it can be read."""
        if not fault:
            self._troubled.discard(owner.resource)
        elif owner.resource not in self._troubled:
            self._troubled.add(owner.resource)
            _log.warning(
                "An owner's selector could not be read, and so the default constraints of its pods are not known; "
                "asking again. The ClusterRole of manifests/ allows to get it",
                owner=f"{owner.kind} {owner.key}",
                kind=full_name(KINDS[owner.resource]),
                fault=fault,
            )

    def _forget_others(self) -> None:
        wanted = {(owner.resource, owner.key) for owner in self._wanted}
        for resource in RESOURCES:
            gone = [key for key in self._informers.state.keys(resource) if (resource, key) not in wanted]
            self._informers.state.apply(resource, [(key, None) for key in gone])


def _unchanging(owner: Workload) -> Workload:
    """Return an owner without fields that change all the time, so that they don't look like a change."""
    return Workload(
        namespace=owner.namespace,
        name=owner.name,
        uid=owner.uid,
        controller=owner.controller,
        selector=owner.selector,
        is_ordered=owner.is_ordered,
    )
