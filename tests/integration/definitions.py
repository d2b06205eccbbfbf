"""CustomResourceDefinitions: whether those that were just applied are served, and how they are deleted."""

from __future__ import annotations

from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError
from tests.processes import wait_until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def wait_until_served(sandbox: Sandbox, group_version: str, *resources: str) -> None:
    """Wait until resources, in the plural, are in discovery and can be listed. Both come after their definition."""
    base = f"/apis/{group_version}"

    def served() -> bool:
        try:
            discovered = {each["name"] for each in sandbox.api.get(base)["resources"]}
            for each in resources:
                sandbox.api.get(f"{base}/{each}")
        except ApiError:  # 404, or 429 while its storage is prepared
            return False
        return discovered >= set(resources)

    wait_until(served, f"{', '.join(resources)} to be served")


def delete_definitions(sandbox: Sandbox, *names: str) -> None:
    """Delete those of our CustomResourceDefinitions that exist, and wait until they are gone.

    They are served before, because the API server's finalizer lists their objects. If their storage is not ready then,
    it may put them off until its informer's resync, which takes up to five minutes.
    """
    if existing := [name for name in names if sandbox.api.exists(f"{DEFINITIONS}/{name}")]:
        wait_until_served(sandbox, "respread.dev/v1alpha1", *(name.partition(".")[0] for name in existing))
        sandbox.kubectl("delete", "crd", *existing)
