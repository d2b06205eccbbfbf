"""A plan for one snapshot, with defaults for everything that a test does not set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime

from respread.api.policy import Policy
from respread.cluster.state import ClusterSnapshot
from respread.planning.moving_pods import NOTHING_UNDER_WAY, OnHold, UnderWay, never_on_hold
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.protection import SYSTEM_PRIORITY_CLASSES
from respread.scheduling.predictor import Predictor
from respread.spread.group import GroupKey
from respread.spread.index import Spread
from tests.spreads import spread_of


def plan_cluster(
    snapshot: ClusterSnapshot,
    policies: Collection[Policy],
    *,
    now: datetime,
    spread: Spread | None = None,
    predictor: Predictor | None = None,
    priority_classes: Mapping[str, int] = SYSTEM_PRIORITY_CLASSES,
    on_hold: OnHold = never_on_hold,
    begun: AbstractSet[GroupKey] = frozenset(),
    under_way: UnderWay = NOTHING_UNDER_WAY,
) -> Plan:
    """Return the plan for a cluster under policies.

    Args:
        snapshot: the cluster.
        policies: of both kinds.
        now: the time, with a time zone.
        spread: the snapshot's spread groups; None computes them.
        predictor: a predictor to use, whose view is advanced to the snapshot; None creates one.
        priority_classes: values of the cluster's PriorityClasses by name.
        on_hold: the groups that are held, with the reason.
        begun: groups that our moves have begun to restore.
        under_way: the moves that were chosen or made, and whose replacements are not Ready.
    """
    setting = PolicySetting(tuple(policies), priority_classes)
    return Planner(predictor).plan(
        snapshot,
        spread_of(snapshot) if spread is None else spread,
        setting,
        now=now,
        on_hold=on_hold,
        begun=begun,
        under_way=under_way,
    )
