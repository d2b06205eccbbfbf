"""How Kubernetes learns that an object belongs to a policy and is to be deleted with it."""

from __future__ import annotations

from respread.api.policy import API_VERSION, Policy


def owner_reference(policy: Policy) -> dict[str, str]:
    """Return the entry of `metadata.ownerReferences` for a policy.

    Only objects in the policy's own namespace may have it; with a ClusterRebalancePolicy, objects in any namespace. The
    garbage collector deletes other objects at once: it looks for the owner in the object's namespace.
    """
    return {"apiVersion": API_VERSION, "kind": policy.kind, "name": policy.object_name, "uid": policy.uid}
