"""The types RebalancePolicy and ClusterRebalancePolicy.

They are the single source: the CRDs are generated from these types (`respread.api.schema`), objects are decoded into
them (`respread.api.decoding`), and docs/policy.md is tested against them. In the CRD, a field with a structure type has
the structure's docstring as its description; other fields have their own. Every field has the default that the API
server fills in, or that counts if the field is left out, so `PolicySpec()` equals an empty `spec`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from respread.api.fields import LabelKey, LabelValue, Percentage, described, duration, expects, rule
from respread.api.label_selector import LabelSelector, LabelSelectorRequirement
from respread.api.problem import Problem

GROUP: Final = "respread.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

PolicyKind: TypeAlias = Literal["RebalancePolicy", "ClusterRebalancePolicy"]
Mode: TypeAlias = Literal["DryRun", "Enforce"]
WhenUnsatisfiable: TypeAlias = Literal["DoNotSchedule", "ScheduleAnyway"]
ProtectOrEvict: TypeAlias = Literal["Protect", "Evict"]
BudgetRule: TypeAlias = Literal["Optional", "Required"]
Toggle: TypeAlias = Literal["Disabled", "Enabled"]
Provision: TypeAlias = Literal["Report", "Request"]
CostsOfOthers: TypeAlias = Literal["Keep", "Replace"]

PLURALS: Final[dict[PolicyKind, str]] = {
    "RebalancePolicy": "rebalancepolicies",
    "ClusterRebalancePolicy": "clusterrebalancepolicies",
}
"""The resource name of each kind, as in paths and RBAC rules."""

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server sets on every namespace, with the namespace's name."""
UNTOUCHED_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")
"""The namespaces that a ClusterRebalancePolicy leaves alone unless it has a namespace selector."""


REQUEST_NEEDS_PRIORITY_CLASS: Final = "provision Request needs priorityClassName, a PriorityClass with a negative value"
LEAST_PER_HOUR_OF_GROUP: Final = 10
"""Small groups may need several evictions for each of their pods if nodes come and go."""


PriorityClassName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        extra=expects("the name of a PriorityClass"),
    ),
]


class ExpectedDomains(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The domains of one topology key that should exist, whether or not they have a node now."""

    topology_key: Annotated[LabelKey, described("The node label whose values are the domains.")]
    values: Annotated[
        tuple[LabelValue, ...],
        Meta(
            min_length=1,
            max_length=100,
            description="The domains: values of that label.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ]
    provision: Annotated[
        Provision,
        described(
            "What is done about a domain that a constraint needs and that has no node, or no room on its nodes. "
            "Report: the status says so. Request: "
            "Respread also asks the cluster's autoscaler for a node there, by a CapacityBuffer or a placeholder "
            "Deployment in its own namespace, and removes it when the node is there. It needs the permission to create "
            "these there."
        ),
    ] = "Report"
    priority_class_name: Annotated[
        PriorityClassName | None,
        described(
            "The PriorityClass of the pods that ask for room, required by provision Request. It must be negative, "
            "so that every other pod takes precedence."
        ),
    ] = None


class ConstraintRules(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which topology spread constraints are restored."""

    when_unsatisfiable: Annotated[
        tuple[WhenUnsatisfiable, ...],
        Meta(
            min_length=1,
            max_length=2,
            description=(
                "The kinds of constraints that are restored. With ScheduleAnyway, soft constraints are restored too if "
                "kube-scheduler's score makes it likely that their replacements land in a better domain."
            ),
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ("DoNotSchedule",)
    topology_keys: Annotated[
        tuple[LabelKey, ...],
        Meta(
            max_length=16,
            description="The topology keys whose constraints are restored. Empty: all keys.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    expected_domains: Annotated[
        tuple[
            Annotated[
                ExpectedDomains,
                Meta(
                    extra_json_schema=rule(
                        "!has(self.provision) || self.provision != 'Request' || has(self.priorityClassName)",
                        REQUEST_NEEDS_PRIORITY_CLASS,
                    )
                ),
            ],
            ...,
        ],
        Meta(
            max_length=16,
            description=(
                "Domains that may have no node now, such as zones with an autoscaled group of zero nodes. "
                "kube-scheduler does not know a domain without nodes. If one is listed here, the status reports that "
                "it is missing."
            ),
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["topologyKey"]},
        ),
    ] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many evictions are made at once and over time.

    An eviction is in flight until the pod's replacement is Ready or Respread gives up on it. The limits of a
    ClusterRebalancePolicy apply in total, whichever policy evicts.
    """

    in_flight: Annotated[
        int, Meta(ge=1, le=10_000, description="How many evictions may be in flight at once, in total.")
    ] = 10
    in_flight_per_namespace: Annotated[
        int, Meta(ge=1, le=10_000, description="How many evictions may be in flight at once in one namespace.")
    ] = 10
    in_flight_per_node: Annotated[
        int, Meta(ge=1, le=10_000, description="How many evictions of pods on one node may be in flight at once.")
    ] = 2
    in_flight_per_workload: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | Percentage,
        Meta(
            description=(
                "How many evictions of pods of one workload may be in flight at once: a number, or a percentage of its "
                "replicas such as 10%, rounded down, but at least 1."
            ),
            extra=expects("a number from 1 to 10000, or a percentage from 1% to 100%"),
        ),
    ] = "10%"
    per_hour: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None,
        described("How many evictions may be made within any hour. 0: none at all. Left out: no limit."),
    ] = None
    per_hour_per_group: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | Percentage,
        Meta(
            description=(
                "How many evictions may be made within any hour to restore one constraint of one set of pods (a spread "
                "group). This bounds the cost if another controller undoes the evictions: a number, 0 for none at all, "
                "or a percentage of the pods that the constraint counts, but at least 10."
            ),
            extra=expects("a number from 0 to 1000000, or a percentage from 1% to 100%"),
        ),
    ] = "100%"
    failures_in_a_row: Annotated[
        int,
        Meta(
            ge=0,
            le=20,
            description=(
                "The policy is paused when evictions of this many different workloads have failed in a row with no "
                "success in between. The first pause takes a minute, later ones longer. After each pause, one eviction "
                "is tried. 0: never."
            ),
        ),
    ] = 3

    def in_flight_of_workload(self, replicas: int) -> int:
        """Return how many pods of a workload with this many `replicas` may be in flight at once, at least 1."""
        limit = self.in_flight_per_workload
        if isinstance(limit, int):
            return limit
        return max(1, replicas * int(limit.removesuffix("%")) // 100)

    def per_hour_of_group(self, pods: int) -> int:
        """Return how many evictions may be made in an hour for a group with this many pods."""
        limit = self.per_hour_per_group
        if isinstance(limit, int):
            return limit
        return max(LEAST_PER_HOUR_OF_GROUP, pods * int(limit.removesuffix("%")) // 100)


class PriorityThreshold(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod priority, as the name of a PriorityClass or as a number. Exactly one of the two is set."""

    name: Annotated[
        PriorityClassName | None,
        described("The PriorityClass whose value is the threshold."),
    ] = None
    value: Annotated[
        Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None,
        described("The threshold as a number."),
    ] = None


class TrustedController(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of custom resource that owns ReplicaSets, StatefulSets or ReplicationControllers."""

    group: Annotated[
        str,
        Meta(
            max_length=253,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
            description="The API group without the version, such as argoproj.io.",
            extra=expects("an API group without its version, such as argoproj.io"),
        ),
    ]
    kind: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=r"^[A-Z][A-Za-z0-9]*$",
            description="The kind, such as Rollout.",
            extra=expects("a kind, such as Rollout"),
        ),
    ]


class VictimRules(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which pods may be evicted."""

    min_age: Annotated[
        timedelta,
        duration("Younger pods are not evicted. A Go duration such as 1m.", least="0s", greatest="8760h"),
    ] = timedelta(minutes=1)
    priority_threshold: Annotated[
        PriorityThreshold,
        described(
            "Pods of this priority and above are not evicted. Default: the PriorityClass system-cluster-critical.",
            rule("has(self.name) != has(self.value)", "set exactly one of name and value"),
        ),
    ] = PriorityThreshold(name="system-cluster-critical")
    min_replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description=(
                "Pods of workloads with fewer replicas are not evicted: with one replica, an eviction is an outage. "
                "1: no protection."
            ),
        ),
    ] = 2
    budget: Annotated[
        BudgetRule | None,
        described(
            "Whether a pod must have a PodDisruptionBudget to be evicted. Required: pods that no PodDisruptionBudget "
            "selects are not evicted. Optional, and left out: they are."
        ),
    ] = None
    local_storage: Annotated[
        ProtectOrEvict,
        described(
            "Whether pods with storage on their node (hostPath, or emptyDir on disk) may be evicted. An eviction loses "
            "the data there."
        ),
    ] = "Protect"
    persistent_volume_claims: Annotated[
        ProtectOrEvict,
        described(
            "Whether pods that use PersistentVolumeClaims may be evicted. They only move to nodes that can reach their "
            "volumes."
        ),
    ] = "Evict"
    changed_pods: Annotated[
        ProtectOrEvict,
        described(
            "Whether pods may be evicted that differ from their controller's template in a field that affects where "
            "they can be placed: resized in place, changed by a webhook, or created from an older template. With "
            "Evict, the replacement is assumed to be like the pod."
        ),
    ] = "Protect"
    trusted_controllers: Annotated[
        tuple[TrustedController, ...],
        Meta(
            max_length=32,
            description=(
                "Kinds that own ReplicaSets, StatefulSets or ReplicationControllers whose pods may be evicted, besides "
                "Deployments and Argo Rollouts. Pods below any other owner are not evicted, because it may be in the "
                "middle of an update or may restart a whole group for one pod."
            ),
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["group", "kind"]},
        ),
    ] = ()


class EvictionOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a pod is evicted, and how long Respread waits for its replacement."""

    grace_period_seconds: Annotated[
        Annotated[
            int,
            Meta(
                ge=1,
                le=86_400,
                extra=expects(
                    "a whole number from 1 to 86400, or left out to use the value of each pod (0 would delete the pod "
                    "before it has stopped, so that two pods of one StatefulSet identity can run at once)"
                ),
            ),
        ]
        | None,
        described(
            "Seconds that an evicted pod has to stop. Left out: the value of the pod, but at least 1. 0 is rejected, "
            "because it would delete the pod before it has stopped."
        ),
    ] = None
    ready_timeout: Annotated[
        timedelta,
        duration(
            "How long the replacement of an evicted pod may take to become Ready after it has a node. After that, the "
            "eviction counts as failed. A Go duration such as 5m.",
            least="1s",
            greatest="24h",
        ),
    ] = timedelta(minutes=5)


class Window(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A recurring time in which evictions are made."""

    schedule: Annotated[
        str,
        Meta(
            max_length=200,
            description=(
                "When the window opens: a cron expression of five fields (minute, hour, day of month, month, day of "
                "week), such as 0 2 * * *."
            ),
            extra_json_schema=rule(
                r"self.matches(r'^\S+( +\S+){4}$')",
                "must be a cron expression of five fields: minute, hour, day of month, month and day of week",
            ),
        ),
    ]
    duration: Annotated[
        timedelta,
        duration("How long the window stays open. A Go duration such as 2h.", least="1m", greatest="168h"),
    ]
    time_zone: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
            description="The time zone of the schedule: a name in the IANA database, such as Europe/Berlin.",
            extra=expects("the name of a time zone, such as Europe/Berlin or UTC"),
        ),
    ] = "UTC"


class Prevention(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Measures that prevent skew."""

    pod_deletion_cost: Annotated[
        Toggle,
        described(
            "Whether Respread sets the annotation controller.kubernetes.io/pod-deletion-cost, so that a scale-down "
            "deletes pods from the fullest domains. It needs the permission to patch pods."
        ),
    ] = "Disabled"
    costs_of_others: Annotated[
        CostsOfOthers,
        described(
            "Who wins if somebody else writes that annotation too. Keep: a cost that somebody else wrote is never "
            "changed. Replace: Respread replaces it, about once a minute for each ReplicaSet where it is lost again."
        ),
    ] = "Keep"


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of a RebalancePolicy. A ClusterRebalancePolicy also has `namespaceSelector`."""

    mode: Annotated[
        Mode,
        described("DryRun plans and reports, and evicts nothing. Enforce evicts."),
    ] = "DryRun"
    priority: Annotated[
        int,
        Meta(
            ge=-1_000_000_000,
            le=1_000_000_000,
            description=(
                "If several policies of one kind select a pod, the one with the highest priority governs it, then the "
                "oldest."
            ),
        ),
    ] = 0
    pod_selector: Annotated[
        LabelSelector,
        described("The pods that the policy selects. Empty: all pods."),
    ] = LabelSelector()
    constraints: ConstraintRules = ConstraintRules()
    quiet_period: Annotated[
        timedelta,
        duration(
            "How long the pods that a constraint counts must stay unchanged before one of them is evicted. A "
            "Go duration such as 30s.",
            least="1ms",
            greatest="24h",
        ),
    ] = timedelta(seconds=30)
    leaving_node_patience: Annotated[
        timedelta,
        duration(
            "How long it is waited for a node that is losing its pods anyway, as when it is drained, from one pod to "
            "the next, where their replacements alone would restore a constraint. 0s: not at all. A Go duration such "
            "as 10m.",
            least="0s",
            greatest="24h",
        ),
    ] = timedelta(minutes=10)
    limits: Limits = Limits()
    victims: VictimRules = VictimRules()
    eviction: EvictionOptions = EvictionOptions()
    windows: Annotated[
        tuple[Window, ...],
        Meta(
            max_length=32,
            description="The times in which evictions are made. Empty: always.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    prevention: Prevention = Prevention()


class ClusterPolicySpec(PolicySpec, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of a ClusterRebalancePolicy."""

    namespace_selector: Annotated[
        LabelSelector,
        described(
            "The namespaces that the policy selects. A RebalancePolicy of a namespace takes precedence. Empty: every "
            "namespace. Default: all except kube-system, kube-public and kube-node-lease."
        ),
    ] = LabelSelector(
        match_expressions=(
            LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=UNTOUCHED_NAMESPACES),
        )
    )


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One RebalancePolicy or ClusterRebalancePolicy as a user wrote it.

    It does not contain the status, because what Respread writes there must not look like a change of the policy.
    """

    kind: PolicyKind
    namespace: str = ""
    """Empty for a ClusterRebalancePolicy."""
    object_name: str
    """`metadata.name`."""
    uid: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    """With a time zone. None for a policy that was never created, such as one from a file."""
    spec: PolicySpec
    """A `ClusterPolicySpec` for a ClusterRebalancePolicy. An invalid field has its default."""
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """The name in metrics, Events and messages: `namespace/name`, or the name of a cluster policy."""
        return f"{self.namespace}/{self.object_name}" if self.namespace else self.object_name

    @property
    def is_cluster_policy(self) -> bool:
        """Whether it is a ClusterRebalancePolicy."""
        return self.kind == "ClusterRebalancePolicy"
