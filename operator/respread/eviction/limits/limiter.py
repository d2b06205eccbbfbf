"""Which evictions the limits of a policy bound."""

from __future__ import annotations

import msgspec

from respread.api.policy import NAMESPACE_NAME_LABEL, ClusterPolicySpec, Limits, Policy
from respread.cluster.meta import Labels
from respread.cluster.selectors import NOTHING, Selector, compile_selector
from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Move


class Limiter(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's limits, and the evictions that they bound."""

    policy: str
    limits: Limits
    namespaces: Selector = NOTHING
    """For a ClusterRebalancePolicy: the namespaces that it selects."""
    pods: Selector = NOTHING
    """For a ClusterRebalancePolicy: the pods that it selects there."""

    shared: bool = False
    """Whether several namespaces share them."""

    @classmethod
    def of(cls, policy: Policy) -> Limiter:
        """Return the limits of a policy. They bound the evictions that are made for it.

        The limits of a ClusterRebalancePolicy also bound all evictions of pods that it selects, for any policy.
        """
        spec = policy.spec
        if not isinstance(spec, ClusterPolicySpec):
            return cls(policy=policy.name, limits=spec.limits)
        return cls(
            policy=policy.name,
            limits=spec.limits,
            namespaces=compile_selector(spec.namespace_selector),
            pods=compile_selector(spec.pod_selector),
            shared=True,
        )

    def bounds(self, move: Move, snapshot: ClusterSnapshot) -> bool:
        """Return whether a move counts for these limits."""
        return self.applies(move.policy, move.pod.namespace, move.pod.labels, snapshot)

    def applies(self, policy: str, namespace_name: str, labels: Labels, snapshot: ClusterSnapshot) -> bool:
        """Return whether an eviction for a policy, of a pod with these labels, counts for these limits."""
        if policy == self.policy:
            return True
        namespace = snapshot.namespaces.get(namespace_name)
        return (
            namespace is not None
            and self.pods.matches(labels)
            and self.namespaces.matches(namespace.labels.set(NAMESPACE_NAME_LABEL, namespace_name))
        )
