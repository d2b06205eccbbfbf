"""Why something is not done, as users read it: reasons, for Events, conditions, statuses and labels; messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

EVICTED_FOR_SPREAD: Final = "EvictedForSpread"
"""The reason of the Events on an eviction."""


class Reason(StrEnum):
    """A reason in the style of Kubernetes. People and dashboards see the value."""

    # The replacement
    NO_FEASIBLE_NODE = "NoFeasibleNode"
    UNREAD_OBJECT = "UnreadObject"
    UNKNOWN_REPLACEMENT = "UnknownReplacement"
    SEARCH_LIMIT = "SearchLimit"
    WAITING_FOR_ROOM = "WaitingForRoom"
    REPLACEMENT_REFUSED = "ReplacementRefused"
    REPLACEMENT_WOULD_WAIT = "ReplacementWouldWait"
    TEMPLATE_DIFFERS = "TemplateDiffers"
    UNKNOWN_OWNER = "UnknownOwner"
    # The constraint itself
    CONFLICTING_CONSTRAINTS = "ConflictingConstraints"
    DOMAIN_HAS_NO_NODE = "DomainHasNoNode"
    GROUP_TOO_LARGE = "GroupTooLarge"
    TOO_FEW_DOMAINS = "TooFewDomains"
    # The pod
    BARE_POD = "BarePod"
    DAEMON_SET_POD = "DaemonSetPod"
    FINISHED_POD = "FinishedPod"
    LOCAL_STORAGE = "LocalStorage"
    MIRROR_POD = "MirrorPod"
    NOT_SELECTED = "NotSelected"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    PRIORITY_TOO_HIGH = "PriorityTooHigh"
    PROTECTED_POD = "ProtectedPod"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    TOO_YOUNG = "TooYoung"
    # Its disruption budgets
    BUDGET_OUT_OF_DATE = "BudgetOutOfDate"
    HELD_BY_BUDGET = "HeldByBudget"
    NO_BUDGET = "NoBudget"
    OVERLAPPING_BUDGETS = "OverlappingBudgets"
    # Pace
    BACKING_OFF = "BackingOff"
    IN_MOTION = "InMotion"
    NODE_LEAVING = "NodeLeaving"
    OTHER_DESCHEDULER = "OtherDescheduler"
    LIMIT_REACHED = "LimitReached"
    PAUSED = "Paused"
    PODS_NOT_READY = "PodsNotReady"
    QUIET_PERIOD = "QuietPeriod"
    WINDOW_CLOSED = "WindowClosed"
    # The API server
    API_UNAVAILABLE = "ApiUnavailable"
    EVICTION_REFUSED = "EvictionRefused"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    NOT_LEADING = "NotLeading"
    # The policy
    DRY_RUN = "DryRun"
    INVALID_POLICY = "InvalidPolicy"


def number_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 pod`, `2 pods`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names of several, and how many more there are: `a, b, c and 4 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


class Held(msgspec.Struct, frozen=True):
    """Something is not done, for now or permanently."""

    reason: Reason
    """One word, for metrics and conditions."""
    message: str
    """A sentence for the user: what holds it, with the numbers, and what would change that."""
    until: datetime | None = None
    """When it ends, with a time zone; None if only a change ends it, or if that is unknown."""
    full_domains: tuple[str, ...] = ()
    """Of a group: the domains with the fewest pods whose nodes only lack room for a replacement."""
    named: str = ""
    """What a user would change, by its name: a budget, an annotation, domains."""

    def __str__(self) -> str:
        """Return both, as `explain` shows them."""
        return f"{self.reason}: {self.message}"
