"""The policies in use, with everything that is derived from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from respread.api.policy import Policy
from respread.planning.victims.policies import PolicyIndex
from respread.planning.victims.protection import SYSTEM_PRIORITY_CLASSES, Protection


class PolicySetting(msgspec.Struct, frozen=True, dict=True):
    """The policies, and the objects that they refer to, compiled once for all who ask about them."""

    policies: tuple[Policy, ...]
    """The policies in use, of both kinds."""
    priority_classes: Mapping[str, int] = msgspec.field(default_factory=lambda: SYSTEM_PRIORITY_CLASSES)
    """The values of the cluster's PriorityClasses by name."""

    @cached_property
    def index(self) -> PolicyIndex:
        """Which policies govern which pods."""
        return PolicyIndex(self.policies)

    @cached_property
    def protections(self) -> Mapping[str, Protection]:
        """The rules for victims of every valid policy, by the policies' names."""
        protections: dict[str, Protection] = {}
        for policy in self.policies:
            if policy.problems:
                continue
            try:
                protections[policy.name] = Protection.of(policy.spec.victims, self.priority_classes)
            except ValueError:
                continue  # Its PriorityClass does not exist. Until it does, the policy evicts nothing.
        return protections

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """By name how important policies are where room is not enough for all, the most important first.

        Their `priority` decides, and those that only plan come last: what they would take is there for others.
        """
        importance = {policy.name: (policy.spec.mode == "DryRun", -policy.spec.priority) for policy in self.policies}
        order = sorted(set(importance.values()))
        return {name: order.index(each) for name, each in importance.items()}
