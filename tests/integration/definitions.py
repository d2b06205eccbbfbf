"""CustomResourceDefinitions that were just applied."""

from __future__ import annotations

from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError
from tests.processes import wait_until


def wait_until_served(sandbox: Sandbox, group_version: str, *resources: str) -> None:
    """Wait until resources are in the API server's discovery and can be listed. Both come after their definition.

    Args:
        sandbox: whose API server.
        group_version: such as `respread.dev/v1alpha1`.
        resources: in the plural.
    """
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
