"""Whether an Argo Rollout or an OpenKruise CloneSet is at rest, so that a pod comes back as it was.

A Rollout at rest has one ReplicaSet with pods, which replaces them as that of a Deployment does. In a canary or before
the promotion of a blue-green update, an eviction would distort what is measured. A CloneSet replaces pods by itself; at
rest it has one revision, and its template is that of all its pods.
"""

from __future__ import annotations

from respread.api.reasons import Reason
from respread.eviction.owners.reading import ControllerObject
from respread.planning.held import Held


def why_rollout_holds(rollout: ControllerObject) -> Held | None:
    """Return why an Argo Rollout is not at rest, or None if its template was rolled out in full.

    Args:
        rollout: the Rollout, just read.
    """
    named, status = f"Rollout {rollout.metadata.name}", rollout.status
    if status.current_pod_hash != status.stable_hash:
        return Held(
            Reason.IN_MOTION,
            f"{named} is being rolled out, or was stopped in the middle: promote it, or roll it back, and its pods may "
            "move",
        )
    if (older := status.replicas - status.updated_replicas) > 0:
        return Held(Reason.IN_MOTION, f"{named} is being rolled out: {older} of its pods are of an older template")
    restart_at = rollout.spec.restart_at
    if restart_at is not None and status.restarted_at != restart_at:
        return Held(Reason.IN_MOTION, f"{named} is restarting its pods (spec.restartAt)")
    return None


def why_clone_set_holds(clone_set: ControllerObject) -> Held | None:
    """Return why it is not certain what a CloneSet puts in place of a pod, or None if it is.

    Args:
        clone_set: the CloneSet, just read.
    """
    named, spec, status = f"CloneSet {clone_set.metadata.name}", clone_set.spec, clone_set.status
    if spec.volume_claim_templates:
        return Held(
            Reason.UNKNOWN_REPLACEMENT,
            f"{named} has volumeClaimTemplates: whether a replacement gets new claims, or those of the pod with their "
            "volumes, is not known",
        )
    older = status.replicas - status.updated_replicas
    if older <= 0 and status.current_revision == status.update_revision:
        return None
    if spec.update_strategy.paused or spec.update_strategy.partition not in (0, "0", "0%"):
        return Held(
            Reason.PROTECTED_POD,
            f"{named} keeps {older} of its pods at an older revision (spec.updateStrategy), and of which revision a "
            "replacement would be is not known: finish the update, or roll it back",
        )
    return Held(Reason.IN_MOTION, f"{named} is being rolled out: {older} of its pods are of an older revision")
