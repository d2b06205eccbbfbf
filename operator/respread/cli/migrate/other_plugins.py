"""Plugins that don't restore topology spread: they stay with descheduler. Advice for each."""

from __future__ import annotations

from typing import Final

_ADVICE: Final = {
    "RemoveDuplicates": (
        "Respread restores the constraints that pods have and adds none. Give the workload a "
        "topologySpreadConstraint on "
        "kubernetes.io/hostname, which Respread then restores, or leave this plugin to descheduler."
    ),
    "LowNodeUtilization": (
        "Respread does not look at how full nodes are. Leave this plugin to descheduler; where it moves pods out of a "
        "domain against their constraint, the condition Oscillating of the policy says so."
    ),
    "HighNodeUtilization": (
        "Respread does not empty nodes. Leave this plugin to descheduler, or consolidation to the cluster's "
        "autoscaler; "
        "where it moves pods out of a domain against their constraint, the condition Oscillating of the policy says so."
    ),
    "RemovePodsViolatingInterPodAntiAffinity": (
        "Respread evicts for topology spread only, and never to where anti-affinity would be broken. Leave this "
        "plugin to "
        "descheduler."
    ),
    "RemovePodsViolatingNodeAffinity": (
        "Respread evicts for topology spread only, and places replacements by their node affinity. Leave this "
        "plugin to "
        "descheduler."
    ),
    "RemovePodsViolatingNodeTaints": (
        "Respread evicts for topology spread only. Leave this plugin to descheduler; a taint with the effect NoExecute "
        "needs neither."
    ),
    "RemovePodsHavingTooManyRestarts": (
        "Respread evicts for topology spread only, whatever a pod's restarts. Leave this plugin to descheduler."
    ),
    "PodLifeTime": (
        "Respread evicts for topology spread only, whatever a pod's age or phase. Leave this plugin to descheduler."
    ),
    "RemoveFailedPods": (
        "Respread evicts for topology spread only, and pods that have failed count for nothing there. Leave this "
        "plugin "
        "to descheduler."
    ),
}
"""By the plugins of descheduler 0.36. In v1alpha1 they are called strategies and have the same names."""


def advice(plugin: str) -> str:
    """Return that no field of our policies corresponds to a plugin, why, and what to do."""
    known = _ADVICE.get(
        plugin, "descheduler 0.36 has no such plugin; if it is one of your own, leave it to descheduler."
    )
    return f"{plugin} has no counterpart. {known}"
