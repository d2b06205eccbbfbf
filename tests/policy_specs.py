"""Valid and invalid specs of policies for the API server and for our decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

from respread.api.policy import Policy, PolicyKind

CLUSTER: PolicyKind = "ClusterRebalancePolicy"
NAMESPACED: PolicyKind = "RebalancePolicy"

Spec = dict[str, Any]


def enforces(policy: Policy) -> bool:
    """Return whether pods may be evicted for the policy: its mode is Enforce and it is valid."""
    return policy.spec.mode == "Enforce" and not policy.problems


def policy_manifest(name: str, spec: Spec, kind: PolicyKind = CLUSTER, **metadata: Any) -> dict[str, Any]:
    """Return a policy as users write it."""
    return {"apiVersion": "respread.dev/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


class BadSpec(NamedTuple):
    """A spec with one invalid field."""

    spec: Spec
    field: str
    """The field that every message must name."""
    says: str
    """A part of the API server's message."""
    kind: PolicyKind = CLUSTER

    @property
    def id(self) -> str:
        return f"{self.field.removeprefix('spec.')}-{self.spec}"[:90]


def _limits(**limits: Any) -> Spec:
    return {"limits": limits}


def _victims(**victims: Any) -> Spec:
    return {"victims": victims}


def _constraints(**constraints: Any) -> Spec:
    return {"constraints": constraints}


def _expected(*domains: Any) -> Spec:
    return _constraints(expectedDomains=list(domains))


def _trusted(*kinds: Any) -> Spec:
    return _victims(trustedControllers=list(kinds))


def _windows(**window: Any) -> Spec:
    return {"windows": [{"schedule": "0 2 * * *", "duration": "2h", **window}]}


def _expressions(**expression: Any) -> Spec:
    return {"podSelector": {"matchExpressions": [expression]}}


GOOD_SPECS: dict[str, tuple[PolicyKind, Spec]] = {
    "empty, cluster": (CLUSTER, {}),
    "empty, namespaced": (NAMESPACED, {}),
    "nulls are as left out": (
        CLUSTER,
        {
            "mode": None,
            "eviction": {"gracePeriodSeconds": None, "readyTimeout": None},
            "podSelector": None,
            **_victims(priorityThreshold={"name": None, "value": 0}),
        },
    ),
    "everything, cluster": (
        CLUSTER,
        {
            "mode": "Enforce",
            "priority": -5,
            "namespaceSelector": {"matchLabels": {"team": "shop"}},
            "podSelector": {
                "matchLabels": {"app.kubernetes.io/name": "web", "empty": ""},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["front", "back"]},
                    {"key": "track", "operator": "NotIn", "values": ["canary"]},
                    {"key": "managed", "operator": "Exists"},
                    {"key": "pinned", "operator": "DoesNotExist", "values": []},
                ],
            },
            "constraints": {
                "whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"],
                "topologyKeys": ["topology.kubernetes.io/zone", "rack"],
                "expectedDomains": [
                    {"topologyKey": "topology.kubernetes.io/zone", "values": ["zone-a", "zone-b", "zone-c"]},
                    {"topologyKey": "rack", "values": ["1"], "provision": "Report"},
                    {"topologyKey": "pool", "values": ["a"], "provision": "Request", "priorityClassName": "low.est"},
                ],
            },
            "quietPeriod": "1m30s",
            "limits": {
                "inFlight": 100,
                "inFlightPerNamespace": 50,
                "inFlightPerNode": 20,
                "inFlightPerWorkload": "25%",
                "perHour": 1000,
                "perHourPerGroup": 0,
                "failuresInARow": 0,
            },
            "victims": {
                "minAge": "1.5h",
                "minReplicas": 3,
                "priorityThreshold": {"value": 1_000_000},
                "budget": "Required",
                "localStorage": "Evict",
                "persistentVolumeClaims": "Protect",
                "changedPods": "Evict",
                "trustedControllers": [{"group": "argoproj.io", "kind": "Rollout"}, {"group": "", "kind": "Pod"}],
            },
            "eviction": {"gracePeriodSeconds": 5, "readyTimeout": "1s"},
            "windows": [
                {"schedule": "0 2 * * *", "duration": "2h", "timeZone": "Europe/Berlin"},
                {"schedule": "*/30 22-23,0-4 1 JAN-DEC MON,6#1", "duration": "168h"},
            ],
            "prevention": {"podDeletionCost": "Enabled", "costsOfOthers": "Replace"},
        },
    ),
    "every namespace": (CLUSTER, {"namespaceSelector": {}}),
    "bounds, lowest": (
        NAMESPACED,
        {
            "priority": -1_000_000_000,
            "quietPeriod": "1ms",
            "leavingNodePatience": "0s",
            **_limits(inFlight=1, inFlightPerNamespace=1, inFlightPerNode=1, inFlightPerWorkload="1%", perHour=0),
            **_victims(minAge="0", minReplicas=1, priorityThreshold={"value": -(2**31)}),
            "eviction": {"gracePeriodSeconds": 1},
            **_windows(duration="60s"),
        },
    ),
    "bounds, highest": (
        NAMESPACED,
        {
            "priority": 1_000_000_000,
            "quietPeriod": "24h",
            "leavingNodePatience": "24h",
            **_limits(
                inFlight=10_000,
                inFlightPerNamespace=10_000,
                inFlightPerNode=10_000,
                inFlightPerWorkload=10_000,
                perHour=1_000_000,
                perHourPerGroup=1_000_000,
                failuresInARow=20,
            ),
            **_victims(minAge="8760h", minReplicas=1_000_000, priorityThreshold={"value": 2**31 - 1}),
            "eviction": {"gracePeriodSeconds": 86_400, "readyTimeout": "24h"},
            **_windows(duration="168h"),
        },
    ),
    "all of a workload": (NAMESPACED, _limits(inFlightPerWorkload="100%")),
    "a tenth of a group": (NAMESPACED, _limits(perHourPerGroup="10%")),
}
"""By what they demonstrate."""

_WHOLE_NUMBER = "must be of type int"
_ONE_OF = "Unsupported value"
_LABEL_KEY_EXCESS = "k" * 64
_OPERATORS_AND_VALUES = "values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
_WORKLOAD_LIMIT = "must be a number from 1 to 10000, or a percentage from 1% to 100%"
_GROUP_LIMIT = "must be a number from 0 to 1000000, or a percentage from 1% to 100%"
_DURATION = "must be a duration such as 30s or 1h30m, from"
_SET_ONE = "set exactly one of name and value"
_ZONE = {"topologyKey": "zone", "values": ["a"]}
_ROLLOUT = {"group": "argoproj.io", "kind": "Rollout"}

BAD_SPECS: tuple[BadSpec, ...] = (
    BadSpec({"quitPeriod": "30s"}, "spec.quitPeriod", "unknown field"),
    BadSpec({"limits": {"inFligt": 3}}, "spec.limits.inFligt", "unknown field"),
    BadSpec(_windows(timezone="UTC"), "spec.windows[0].timezone", "unknown field"),
    BadSpec(
        _expressions(key="a", operator="Exists", value="b"), "spec.podSelector.matchExpressions[0].value", "unknown"
    ),
    BadSpec({"namespaceSelector": {}}, "spec.namespaceSelector", "unknown field", NAMESPACED),
    BadSpec({"mode": "enforce"}, "spec.mode", _ONE_OF),
    BadSpec({"mode": True}, "spec.mode", "must be of type string"),
    BadSpec({"priority": "high"}, "spec.priority", _WHOLE_NUMBER),
    BadSpec({"priority": 1.5}, "spec.priority", _WHOLE_NUMBER),
    BadSpec({"priority": 1_000_000_001}, "spec.priority", "less than or equal to 1000000000"),
    BadSpec({"priority": -1_000_000_001}, "spec.priority", "greater than or equal to -1000000000"),
    BadSpec({"namespaceSelector": "all"}, "spec.namespaceSelector", "must be of type object"),
    BadSpec(
        {"namespaceSelector": {"matchLabels": {"a": "b c"}}}, "spec.namespaceSelector.matchLabels.a", "should match"
    ),
    BadSpec(
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn"}]}},
        "spec.namespaceSelector.matchExpressions[0]",
        _OPERATORS_AND_VALUES,
    ),
    BadSpec({"podSelector": ["web"]}, "spec.podSelector", "must be of type object"),
    BadSpec({"podSelector": {"matchLabels": {"app": 3}}}, "spec.podSelector.matchLabels", "must be of type string"),
    BadSpec({"podSelector": {"matchLabels": {"app": "-"}}}, "spec.podSelector.matchLabels.app", "should match"),
    BadSpec({"podSelector": {"matchLabels": {"app": "v" * 64}}}, "spec.podSelector.matchLabels.app", "Too long"),
    BadSpec({"podSelector": {"matchLabels": {"a b": "c"}}}, "spec.podSelector.matchLabels", "must be a label key"),
    BadSpec({"podSelector": {"matchLabels": {"": "c"}}}, "spec.podSelector.matchLabels", "must be a label key"),
    BadSpec(
        {"podSelector": {"matchLabels": {_LABEL_KEY_EXCESS: "c"}}},
        "spec.podSelector.matchLabels",
        "must be a label key",
    ),
    BadSpec({"podSelector": {"matchExpressions": {}}}, "spec.podSelector.matchExpressions", "must be of type array"),
    BadSpec(_expressions(operator="Exists"), "spec.podSelector.matchExpressions[0].key", "Required value"),
    BadSpec(_expressions(key="a"), "spec.podSelector.matchExpressions[0].operator", "Required value"),
    BadSpec(_expressions(key="", operator="Exists"), "spec.podSelector.matchExpressions[0].key", "should match"),
    BadSpec(_expressions(key="a/b/c", operator="Exists"), "spec.podSelector.matchExpressions[0].key", "should match"),
    BadSpec(_expressions(key="a", operator="Gt"), "spec.podSelector.matchExpressions[0].operator", _ONE_OF),
    BadSpec(_expressions(key="a", operator="In"), "spec.podSelector.matchExpressions[0]", _OPERATORS_AND_VALUES),
    BadSpec(
        _expressions(key="a", operator="In", values=[]), "spec.podSelector.matchExpressions[0]", _OPERATORS_AND_VALUES
    ),
    BadSpec(
        _expressions(key="a", operator="Exists", values=["b"]),
        "spec.podSelector.matchExpressions[0]",
        _OPERATORS_AND_VALUES,
    ),
    BadSpec(
        _expressions(key="a", operator="In", values=["b,c"]),
        "spec.podSelector.matchExpressions[0].values[0]",
        "should match",
    ),
    BadSpec({"constraints": 1}, "spec.constraints", "must be of type object"),
    BadSpec(_constraints(whenUnsatisfiable=[]), "spec.constraints.whenUnsatisfiable", "at least 1 items"),
    BadSpec(_constraints(whenUnsatisfiable="DoNotSchedule"), "spec.constraints.whenUnsatisfiable", "of type array"),
    BadSpec(_constraints(whenUnsatisfiable=["Ignore"]), "spec.constraints.whenUnsatisfiable[0]", _ONE_OF),
    BadSpec(
        _constraints(whenUnsatisfiable=["ScheduleAnyway", "ScheduleAnyway"]),
        "spec.constraints.whenUnsatisfiable[1]",
        "Duplicate value",
    ),
    BadSpec(_constraints(topologyKeys=["zone", "zone"]), "spec.constraints.topologyKeys[1]", "Duplicate value"),
    BadSpec(_constraints(topologyKeys=["the zone"]), "spec.constraints.topologyKeys[0]", "should match"),
    BadSpec(
        _constraints(topologyKeys=[f"key-{index}" for index in range(17)]), "spec.constraints.topologyKeys", "Too many"
    ),
    BadSpec(_expected({"values": ["a"]}), "spec.constraints.expectedDomains[0].topologyKey", "Required value"),
    BadSpec(_expected({"topologyKey": "zone"}), "spec.constraints.expectedDomains[0].values", "Required value"),
    BadSpec(
        _expected({"topologyKey": "zone", "values": []}),
        "spec.constraints.expectedDomains[0].values",
        "at least 1 items",
    ),
    BadSpec(
        _expected({"topologyKey": "zone", "values": ["a", "a"]}),
        "spec.constraints.expectedDomains[0].values[1]",
        "Duplicate value",
    ),
    BadSpec(
        _expected({"topologyKey": "zone", "values": ["a "]}),
        "spec.constraints.expectedDomains[0].values[0]",
        "should match",
    ),
    BadSpec(
        _expected({"topologyKey": "-", "values": ["a"]}),
        "spec.constraints.expectedDomains[0].topologyKey",
        "should match",
    ),
    BadSpec(
        _expected({**_ZONE, "provision": "request", "priorityClassName": "low"}),
        "spec.constraints.expectedDomains[0].provision",
        _ONE_OF,
    ),
    BadSpec(
        _expected({**_ZONE, "provision": "Request"}),
        "spec.constraints.expectedDomains[0]",
        "provision Request needs priorityClassName",
    ),
    BadSpec(
        _expected({**_ZONE, "provision": "Request", "priorityClassName": "-"}),
        "spec.constraints.expectedDomains[0].priorityClassName",
        "should match",
    ),
    BadSpec(_expected(_ZONE, _ZONE), "spec.constraints.expectedDomains[1]", "Duplicate value"),
    BadSpec(_victims(changedPods="Replan"), "spec.victims.changedPods", _ONE_OF),
    BadSpec(_trusted({"kind": "Rollout"}), "spec.victims.trustedControllers[0].group", "Required value"),
    BadSpec(_trusted({"group": "argoproj.io"}), "spec.victims.trustedControllers[0].kind", "Required value"),
    BadSpec(
        _trusted({"group": "argoproj.io/v1alpha1", "kind": "Rollout"}),
        "spec.victims.trustedControllers[0].group",
        "should match",
    ),
    BadSpec(_trusted({"group": "a", "kind": "rollouts.a"}), "spec.victims.trustedControllers[0].kind", "should match"),
    BadSpec(_trusted({"group": "a", "kind": ""}), "spec.victims.trustedControllers[0].kind", "at least 1 chars"),
    BadSpec(_trusted(_ROLLOUT, _ROLLOUT), "spec.victims.trustedControllers[1]", "Duplicate value"),
    BadSpec(
        _trusted(*({"group": "a", "kind": f"K{number}"} for number in range(33))),
        "spec.victims.trustedControllers",
        "Too many",
    ),
    BadSpec({"quietPeriod": 30}, "spec.quietPeriod", "must be of type string"),
    BadSpec({"leavingNodePatience": 600}, "spec.leavingNodePatience", "must be of type string"),
    BadSpec({"quietPeriod": "30"}, "spec.quietPeriod", _DURATION),
    BadSpec({"quietPeriod": "1 minute"}, "spec.quietPeriod", _DURATION),
    BadSpec({"quietPeriod": "-30s"}, "spec.quietPeriod", _DURATION),
    BadSpec({"quietPeriod": "0s"}, "spec.quietPeriod", _DURATION),
    BadSpec({"quietPeriod": "24h1ms"}, "spec.quietPeriod", _DURATION),
    BadSpec({"quietPeriod": "1d"}, "spec.quietPeriod", _DURATION),
    BadSpec({"limits": []}, "spec.limits", "must be of type object"),
    BadSpec(_limits(inFlight=0), "spec.limits.inFlight", "greater than or equal to 1"),
    BadSpec(_limits(inFlight=10_001), "spec.limits.inFlight", "less than or equal to 10000"),
    BadSpec(_limits(inFlight="10%"), "spec.limits.inFlight", _WHOLE_NUMBER),
    BadSpec(_limits(inFlightPerNamespace=0), "spec.limits.inFlightPerNamespace", "greater than or equal to 1"),
    BadSpec(_limits(inFlightPerNode=-1), "spec.limits.inFlightPerNode", "greater than or equal to 1"),
    BadSpec(_limits(inFlightPerWorkload=0), "spec.limits.inFlightPerWorkload", _WORKLOAD_LIMIT),
    BadSpec(_limits(inFlightPerWorkload=10_001), "spec.limits.inFlightPerWorkload", _WORKLOAD_LIMIT),
    BadSpec(_limits(inFlightPerWorkload="0%"), "spec.limits.inFlightPerWorkload", _WORKLOAD_LIMIT),
    BadSpec(_limits(inFlightPerWorkload="101%"), "spec.limits.inFlightPerWorkload", _WORKLOAD_LIMIT),
    BadSpec(_limits(inFlightPerWorkload="5"), "spec.limits.inFlightPerWorkload", _WORKLOAD_LIMIT),
    BadSpec(_limits(inFlightPerWorkload="5%\n"), "spec.limits.inFlightPerWorkload", _WORKLOAD_LIMIT),
    BadSpec(_limits(inFlightPerWorkload="1.5%"), "spec.limits.inFlightPerWorkload", _WORKLOAD_LIMIT),
    BadSpec(_limits(inFlightPerWorkload=[]), "spec.limits.inFlightPerWorkload", "must be of type integer,string"),
    BadSpec(_limits(perHourPerGroup=-1), "spec.limits.perHourPerGroup", _GROUP_LIMIT),
    BadSpec(_limits(perHourPerGroup="0%"), "spec.limits.perHourPerGroup", _GROUP_LIMIT),
    BadSpec(_limits(failuresInARow=-1), "spec.limits.failuresInARow", "greater than or equal to 0"),
    BadSpec(_limits(failuresInARow=21), "spec.limits.failuresInARow", "less than or equal to 20"),
    BadSpec(_limits(perHour=-1), "spec.limits.perHour", "greater than or equal to 0"),
    BadSpec({"victims": "all"}, "spec.victims", "must be of type object"),
    BadSpec(_victims(minAge="-1s"), "spec.victims.minAge", _DURATION),
    BadSpec(_victims(minAge="8760h1s"), "spec.victims.minAge", _DURATION),
    BadSpec(_victims(minReplicas=0), "spec.victims.minReplicas", "greater than or equal to 1"),
    BadSpec(_victims(minReplicas="50%"), "spec.victims.minReplicas", _WHOLE_NUMBER),
    BadSpec(_victims(priorityThreshold={}), "spec.victims.priorityThreshold", _SET_ONE),
    BadSpec(_victims(priorityThreshold={"name": "high", "value": 1}), "spec.victims.priorityThreshold", _SET_ONE),
    BadSpec(_victims(priorityThreshold="high"), "spec.victims.priorityThreshold", "must be of type object"),
    BadSpec(_victims(priorityThreshold={"name": "High"}), "spec.victims.priorityThreshold.name", "should match"),
    BadSpec(_victims(priorityThreshold={"name": ""}), "spec.victims.priorityThreshold.name", "at least 1 chars"),
    BadSpec(_victims(priorityThreshold={"value": 2**31}), "spec.victims.priorityThreshold.value", "less than or equal"),
    BadSpec(_victims(budget="Always"), "spec.victims.budget", _ONE_OF),
    BadSpec(_victims(localStorage="Allow"), "spec.victims.localStorage", _ONE_OF),
    BadSpec(_victims(persistentVolumeClaims=True), "spec.victims.persistentVolumeClaims", "must be of type string"),
    BadSpec({"eviction": 30}, "spec.eviction", "must be of type object"),
    BadSpec({"eviction": {"gracePeriodSeconds": -1}}, "spec.eviction.gracePeriodSeconds", "greater than or equal to 1"),
    BadSpec({"eviction": {"gracePeriodSeconds": 0}}, "spec.eviction.gracePeriodSeconds", "greater than or equal to 1"),
    BadSpec({"eviction": {"readyTimeout": "500ms"}}, "spec.eviction.readyTimeout", "1s"),
    BadSpec({"eviction": {"gracePeriodSeconds": "30s"}}, "spec.eviction.gracePeriodSeconds", _WHOLE_NUMBER),
    BadSpec({"windows": {}}, "spec.windows", "must be of type array"),
    BadSpec({"windows": [{"duration": "1h"}]}, "spec.windows[0].schedule", "Required value"),
    BadSpec({"windows": [{"schedule": "0 2 * * *"}]}, "spec.windows[0].duration", "Required value"),
    BadSpec(_windows(schedule="0 2 * *"), "spec.windows[0].schedule", "must be a cron expression of five fields"),
    BadSpec(_windows(schedule="@daily"), "spec.windows[0].schedule", "must be a cron expression of five fields"),
    BadSpec(_windows(schedule="0 0 2 * * *"), "spec.windows[0].schedule", "must be a cron expression of five fields"),
    BadSpec(_windows(duration="59s"), "spec.windows[0].duration", _DURATION),
    BadSpec(_windows(duration="168h1s"), "spec.windows[0].duration", _DURATION),
    BadSpec(_windows(duration="7d"), "spec.windows[0].duration", _DURATION),
    BadSpec(_windows(timeZone="Europe Berlin"), "spec.windows[0].timeZone", "should match"),
    BadSpec(_windows(timeZone="../etc/passwd"), "spec.windows[0].timeZone", "should match"),
    BadSpec(_windows(timeZone=""), "spec.windows[0].timeZone", "at least 1 chars"),
    BadSpec({"windows": [_windows()["windows"][0]] * 33}, "spec.windows", "Too many"),
    BadSpec({"prevention": True}, "spec.prevention", "must be of type object"),
    BadSpec({"prevention": {"podDeletionCost": "enabled"}}, "spec.prevention.podDeletionCost", _ONE_OF),
    BadSpec({"prevention": {"costsOfOthers": "Ignore"}}, "spec.prevention.costsOfOthers", _ONE_OF),
)

WRONG_THOUGH_ACCEPTED: tuple[tuple[Spec, str, str], ...] = (
    (_windows(timeZone="Europe/Berlyn"), "spec.windows[0].timeZone", "did you mean Europe/Berlin?"),
    (_windows(timeZone="America"), "spec.windows[0].timeZone", "there is no time zone"),
    (_windows(timeZone="Mars/Olympus_Mons"), "spec.windows[0].timeZone", "use an IANA name or UTC"),
    (_windows(schedule="0 0 30 2 *"), "spec.windows[0].schedule", "this never happens"),
    (_windows(schedule="0 0 31 4,6,9,11 *"), "spec.windows[0].schedule", "this never happens"),
    (_windows(schedule="0 0 32 1 *"), "spec.windows[0].schedule", "bad day of month"),
    (_windows(schedule="60 0 * * *"), "spec.windows[0].schedule", "bad minute"),
    (_windows(schedule="a b c d e"), "spec.windows[0].schedule", "bad minute"),
    (_windows(schedule="0 0 * FEBRUARY *"), "spec.windows[0].schedule", "bad month"),
)
"""Specs with mistakes that the API server can't detect, with the field and the message in the policy's condition."""
