"""The types RebalancePolicy and ClusterRebalancePolicy.

They are the single source: the CRDs are generated from these types (`respread.api.schema`), objects are decoded into
them (`respread.api.decoding`), and the table in docs/policy.md is made from them (`make reference`). In the CRD, a
field with a structure type has the structure's docstring as its description; other fields have their own. Every field
has the default that the API server fills in, or that counts if the field is left out, so `PolicySpec()` equals an empty
`spec`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from respread.api.fields import (
    LabelKey,
    LabelSelector,
    LabelSelectorRequirement,
    LabelValue,
    Percentage,
    Problem,
    described,
    duration,
    expects,
    rule,
)

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
            "`Report`: the status says so. `Request`: "
            "Respread also asks the cluster's autoscaler for a node there, by a CapacityBuffer or a placeholder "
            "Deployment in its own namespace, and removes it when the node is there. It needs the permission to create "
            "these there."
        ),
    ] = "Report"
    priority_class_name: Annotated[
        PriorityClassName | None,
        described(
            "The PriorityClass of the pods that ask for room, required by `Request`. Its value must be negative, so "
            "that every other pod takes precedence."
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
                "The kinds of constraints that are restored. With `ScheduleAnyway`, soft constraints are restored too "
                "if kube-scheduler's score makes it likely that their replacements land in a better domain."
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
                "Domains that should exist, even if they have no node now, as a zone with an autoscaled group of zero "
                "nodes, which kube-scheduler does not know. If a constraint would be violated with these domains "
                "present and empty, it is reported as blocked (`DomainHasNoNode`)."
            ),
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["topologyKey"]},
        ),
    ] = ()

    def include(self, when_unsatisfiable: WhenUnsatisfiable, topology_key: str) -> bool:
        """Return whether such constraints are restored."""
        return when_unsatisfiable in self.when_unsatisfiable and (
            not self.topology_keys or topology_key in self.topology_keys
        )


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many evictions are made at once and over time.

    An eviction is in flight until the replacement is Ready or Respread gives up on it. The limits of a
    ClusterRebalancePolicy apply in total, whichever policy evicts.
    """

    in_flight: Annotated[int, Meta(ge=1, le=10_000, description="Evictions in flight at once, in total.")] = 10
    in_flight_per_namespace: Annotated[
        int, Meta(ge=1, le=10_000, description="Evictions in flight at once in one namespace.")
    ] = 10
    in_flight_per_node: Annotated[
        int, Meta(ge=1, le=10_000, description="Evictions in flight at once of pods on one node.")
    ] = 2
    in_flight_per_workload: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | Percentage,
        Meta(
            description=(
                "Evictions in flight at once of pods of one workload. A percentage refers to its replicas, rounded "
                "down, but at least 1. Pods of the workload that are not Ready for any other reason count too, except "
                "those that are to be evicted themselves."
            ),
            extra=expects("a number from 1 to 10000, or a percentage from 1% to 100%"),
        ),
    ] = "10%"
    per_hour: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None,
        described(
            "Evictions within any hour. 0: none at all. Left out: no limit. If it is too low for all constraints, as "
            "many as possible are restored, rather than all begun."
        ),
    ] = None
    per_hour_per_group: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | Percentage,
        Meta(
            description=(
                "Evictions within any hour for one spread group (one constraint of one set of pods), whatever their "
                "outcome. This bounds the cost if something undoes what Respread does. 0: none at all. A percentage "
                "refers to the pods that the group counts, and is at least 10. There is always a limit; 1000000 is "
                "none in effect."
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
                "success in between. The first pause takes a minute, later ones longer, up to 4 hours; after each, a "
                "single eviction is tried. 0: never, and ends a pause at once."
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

    name: Annotated[PriorityClassName | None, described("The PriorityClass whose value is the threshold.")] = None
    value: Annotated[
        Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None, described("The threshold as a number.")
    ] = None


class TrustedController(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of custom resource that owns ReplicaSets, StatefulSets or ReplicationControllers."""

    group: Annotated[
        str,
        Meta(
            max_length=253,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$",
            description="The API group without the version, such as argoproj.io; empty for the core group.",
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
    """Which pods may be evicted.

    Pods of DaemonSets, mirror pods, pods without a controller and pods with a protecting annotation never are.
    """

    min_age: Annotated[timedelta, duration("Younger pods are not evicted.", least="0s", greatest="8760h")] = timedelta(
        minutes=1
    )
    priority_threshold: Annotated[
        PriorityThreshold,
        described(
            "Pods of this priority and above are not evicted. Default: `{name: system-cluster-critical}`.",
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
                "1: no protection. `spec.replicas` of the controller is read right before an eviction; a plan uses the "
                "number of existing pods."
            ),
        ),
    ] = 2
    budget: Annotated[
        BudgetRule | None,
        described(
            "Whether a pod must have a PodDisruptionBudget to be evicted. `Required`: pods that no PodDisruptionBudget "
            "selects are not evicted (`NoBudget`), which is looked up again right before an eviction. `Optional`, and "
            "left out: they are."
        ),
    ] = None
    local_storage: Annotated[
        ProtectOrEvict,
        described(
            "Whether pods with storage on their node (`hostPath`, or `emptyDir` on disk) may be evicted. An eviction "
            "loses the data there."
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
            "they can be placed: resized in place, changed by a webhook, relabeled, or created from an older template. "
            "With `Evict`, the replacement is assumed to be like the pod."
        ),
    ] = "Protect"
    trusted_controllers: Annotated[
        tuple[TrustedController, ...],
        Meta(
            max_length=32,
            description=(
                "Kinds that own ReplicaSets, StatefulSets or ReplicationControllers whose pods may be evicted, besides "
                "Deployments and Argo Rollouts. Pods below any other owner are not evicted (`UnknownOwner`): it may be "
                "in the middle of an update, or restart a whole group for one pod. A listed owner is not asked."
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
            "because it would delete the pod before it has stopped: two pods with one StatefulSet identity may run."
        ),
    ] = None
    ready_timeout: Annotated[
        timedelta,
        duration(
            "How long the replacement of an evicted pod may take to become Ready after it has a node. After that, the "
            "eviction counts as failed (`NotReady`).",
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
                "week), such as `0 2 * * *`."
            ),
            extra_json_schema=rule(
                r"self.matches(r'^\S+( +\S+){4}$')",
                "must be a cron expression of five fields: minute, hour, day of month, month and day of week",
            ),
        ),
    ]
    duration: Annotated[timedelta, duration("How long the window stays open.", least="1m", greatest="168h")]
    time_zone: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
            description=(
                "The time zone of the schedule: a name in the IANA database, such as Europe/Berlin. If clocks skip the "
                "opening time, the window opens right after."
            ),
            extra=expects("the name of a time zone, such as Europe/Berlin or UTC"),
        ),
    ] = "UTC"


class Prevention(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Measures that prevent skew."""

    pod_deletion_cost: Annotated[
        Toggle,
        described(
            "Whether Respread sets the annotation `controller.kubernetes.io/pod-deletion-cost` of pods, so that a "
            "scale-down of a ReplicaSet deletes pods from the fullest domains. It needs the permission to patch pods."
        ),
    ] = "Disabled"
    costs_of_others: Annotated[
        CostsOfOthers,
        described(
            "Who wins if somebody else writes that annotation too. `Keep`: a cost that somebody else wrote is never "
            "changed. `Replace`: Respread replaces it, about once a minute for each ReplicaSet where it is lost again."
        ),
    ] = "Keep"


class PolicySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of a RebalancePolicy. A ClusterRebalancePolicy also has `namespaceSelector`."""

    mode: Annotated[Mode, described("`DryRun` plans and reports, and evicts nothing. `Enforce` evicts.")] = "DryRun"
    priority: Annotated[
        int,
        Meta(
            ge=-1_000_000_000,
            le=1_000_000_000,
            description=(
                "If several policies of one kind select a pod, the one with the highest priority governs it, then the "
                "oldest. Also decides which constraints are restored first if there is not enough room for all."
            ),
        ),
    ] = 0
    pod_selector: Annotated[LabelSelector, described("The pods that the policy selects. Empty: all pods.")] = (
        LabelSelector()
    )
    constraints: ConstraintRules = ConstraintRules()
    quiet_period: Annotated[
        timedelta,
        duration(
            "How long the pods that a constraint counts must stay unchanged before one of them is evicted.",
            least="1ms",
            greatest="24h",
        ),
    ] = timedelta(seconds=30)
    leaving_node_patience: Annotated[
        timedelta,
        duration(
            "How long to wait, from one pod to the next, for a node that loses its pods anyway (a drain, "
            "`karpenter.sh/disrupted`, `ToBeDeletedByClusterAutoscaler`, a `NoExecute` taint), if their replacements "
            "alone restore a constraint. 0s: not at all.",
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
            description=(
                "The times in which evictions are made: while at least one window is open. Empty: always. Plans are "
                "made and reported at any time."
            ),
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    prevention: Prevention = Prevention()


class ClusterPolicySpec(PolicySpec, frozen=True, kw_only=True, rename="camel"):
    """The `spec` of a ClusterRebalancePolicy."""

    namespace_selector: Annotated[
        LabelSelector,
        described(
            "The namespaces that a ClusterRebalancePolicy selects. A RebalancePolicy of a namespace takes precedence. "
            "No policy selects one that is being deleted. Empty: every namespace. A selector replaces the default; "
            "to keep excluding system namespaces, it has to name them. Default: all but `kube-system`, `kube-public` "
            "and `kube-node-lease`."
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

    @property
    def owner_reference(self) -> dict[str, str]:
        """The entry of `metadata.ownerReferences` of objects that belong to it, and are deleted with it.

        Only objects in the policy's own namespace may have it; with a ClusterRebalancePolicy, objects in any namespace.
        The garbage collector deletes others at once: it looks for the owner in the object's namespace.
        """
        return {"apiVersion": API_VERSION, "kind": self.kind, "name": self.object_name, "uid": self.uid}
