"""The reasons why Respread does not evict, used in `explain`, Events, conditions, statuses and metric labels."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

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
