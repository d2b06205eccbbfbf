"""The loops that act, put together: the control loop, and those beside it that write costs and ask for room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from respread.cluster.stores import POLICY_KINDS
from respread.controller.acting import Acting, put_together
from respread.controller.announcements import Announcements
from respread.controller.control_loop import ControlLoop
from respread.controller.lease import Leadership
from respread.controller.options import OperatorOptions
from respread.controller.permissions import PermissionNeeds, Permissions
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.records.journal import Journal
from respread.controller.scheduler_model import SchedulerModel
from respread.eviction.answers import EvictionResult
from respread.handlers.informer import Informers
from respread.holds.other_evictions import others_by_name
from respread.kube.events import EventRecorder
from respread.kube.leadership import seconds_since_boot
from respread.kube.requests import Requests
from respread.moves.entry import Outcome
from respread.provisioning.room_loop import RoomEnd, RoomLoop
from respread.provisioning.room_objects import Buffers, Placeholders
from respread.telemetry.health import Heartbeat
from respread.telemetry.metrics import CountedFromTheStart, Metrics

COUNTED: Final = CountedFromTheStart(
    results=(EvictionResult.EVICTED,), outcomes=tuple(Outcome), room_results=tuple(RoomEnd)
)
"""What the metrics show from the start, although it has not happened yet."""


class Loops(NamedTuple):
    """The loops, and what they use. They belong to one event loop."""

    acting: Acting
    control: ControlLoop
    prevention: PreventionLoop
    room: RoomLoop
    beside: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    """What else must run for them."""

    def start(self) -> tuple[asyncio.Task[None], ...]:
        """Start the loops, and return their tasks."""
        return (
            asyncio.create_task(self.control.run(), name="control-loop"),
            asyncio.create_task(self.prevention.run(), name="prevention"),
            asyncio.create_task(self.room.run(), name="room"),
        )

    def stop(self) -> None:
        """End the tasks that `start` returned after the answers to their requests and the last statuses."""
        for loop in (self.control, self.prevention, self.room):
            loop.stop()


def loops_of(
    options: OperatorOptions,
    requests: Requests,
    informers: Informers,
    leadership: Leadership,
    *,
    own_namespace: Callable[[], str | None],
    permissions: Permissions,
    events: EventRecorder,
    metrics: Metrics,
    heartbeat: Heartbeat,
) -> Loops:
    """Return the loops of the operator. The operator's own namespace is None while unknown."""
    clock, leading = seconds_since_boot, leadership.leading
    others, evictor_names = others_by_name(requests, metrics)
    acting = put_together(
        *(requests, informers, leading, Journal(clock)),
        announcements=Announcements(events.record, informers.policies.current),
        metrics=metrics,
        policy_kinds=[each.kind for each in informers.all if each.kind in POLICY_KINDS],
        others=others,
    )
    prevention = PreventionLoop(
        requests, leading, metrics=metrics, notify=partial(informers.changes.notify, "costs"), clock=clock
    )
    permission, image = acting.permission, options.placeholder_image
    room = RoomLoop(
        Placeholders(requests, image),
        Buffers(requests, image),
        namespace=own_namespace,
        leads=lambda: permission.leads,
        may_evict=lambda policy: permission.of_policy(policy, policy.name) is None,
        metrics=metrics,
        notify=partial(informers.changes.notify, "room"),
        clock=clock,
    )
    announce = acting.announcements.permissions
    needs = PermissionNeeds(
        permissions, own_namespace=own_namespace, announce=announce, helm_release=options.helm_release
    )
    scheduler = SchedulerModel.of_cluster(options.scheduler_configuration, requests, informers, clock)
    control = ControlLoop(
        *(informers, acting),
        leading=leading,
        prevention=prevention,
        room=room,
        needs=needs,
        metrics=metrics,
        heartbeat=heartbeat,
        scheduler=scheduler,
    )
    return Loops(acting, control, prevention, room, (scheduler.run, permissions.run, evictor_names.run))
