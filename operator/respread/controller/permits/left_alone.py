"""Why a spread group is left alone for a time, and until when."""

from __future__ import annotations

from collections.abc import Callable

from respread.api.reasons import Reason
from respread.controller.observation import Observation
from respread.controller.quiet_period import QuietPeriods
from respread.controller.records.other_evictions import OtherEvictions
from respread.planning.held import Held
from respread.planning.moving_pods import OnHold
from respread.planning.plan import BlockedGroup
from respread.spread.group import GroupKey


def left_alone(observation: Observation, quiet_periods: QuietPeriods, others: OtherEvictions) -> OnHold:
    """Return a function that returns why a group is left alone, or None if it is not.

    It is not quiet for long enough, it backs off, somebody else evicts its pods, or it has had as many evictions as an
    hour allows.
    """

    def on_hold(key: GroupKey, policy: str) -> Held | None:
        spec, group = observation.policies[policy].spec, observation.spread.groups[key]
        return (
            quiet_periods.held(key, spec.quiet_period, observation.now)
            or observation.history.why_left_alone(group)
            or others.held(group, observation.time)
            or observation.history.pace_of(group).beyond(policy, spec.limits)
        )

    return on_hold


def left_alone_until(
    observation: Observation,
    quiet_periods: QuietPeriods,
    others: OtherEvictions,
    on_the_clock: Callable[[float | None], float | None],
) -> Callable[[BlockedGroup], float | None]:
    """Return a function that returns when a group is released, on the clock; None if only a change releases it.

    Args:
        observation: what the plan was made for.
        quiet_periods: since when groups are quiet.
        others: who else evicts pods.
        on_the_clock: converts seconds since the epoch to the clock.
    """

    def release(blocked: BlockedGroup) -> float | None:
        if blocked.reason is Reason.QUIET_PERIOD:
            return quiet_periods.release(blocked.group, observation.policies[blocked.policy].spec.quiet_period)
        if blocked.reason is Reason.BACKING_OFF:
            return on_the_clock(observation.history.release(observation.spread.groups[blocked.group]))
        if blocked.reason is Reason.OTHER_DESCHEDULER:
            held = others.held(observation.spread.groups[blocked.group], observation.time)
            return None if held is None or held.until is None else on_the_clock(held.until.timestamp())
        return None

    return release
