"""Chart and manifests install the same, and leave only CustomResourceDefinitions when they are removed."""

from __future__ import annotations

from typing import Final

from respread_sandbox import Sandbox
from tests.faults.operators import NAMESPACE
from tests.integration.operator_process import REPOSITORY, wait_until_policies_are_served
from tests.node.installation import Installation
from tests.processes import wait_until

BASE: Final = str(REPOSITORY / "manifests" / "base")
_BY_OTHERS: Final = {"configmap/kube-root-ca.crt", "serviceaccount/default", f"namespace/{NAMESPACE}"}
"""What every namespace has, and what `helm install` was not asked to create."""
_IGNORED: Final = frozenset(
    {
        "apiservices.apiregistration.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "events",
        "events.events.k8s.io",
    }
)
"""The definitions stay, and the API server derives APIServices from them. Events expire."""


def objects(sandbox: Sandbox) -> set[str]:
    """Return what is in Respread's namespace, and what has its name anywhere else."""
    found: set[str] = set()
    for namespaced in ("true", "false"):
        listed = sandbox.kubectl("api-resources", f"--namespaced={namespaced}", "--verbs=list", "-o", "name").split()
        kinds = ",".join(sorted(set(listed) - _IGNORED))
        where = ["-n", NAMESPACE] if namespaced == "true" else []
        lines = sandbox.kubectl("get", kinds, *where, "-o", "name", "--ignore-not-found").splitlines()
        found |= {line for line in lines if namespaced == "true" or "respread" in line}
    return found


def test_helm_leaves_only_the_definitions(installed: Installation) -> None:
    installed.uninstall()
    assert objects(installed.cluster.sandbox) == _BY_OTHERS


def test_the_manifests_start_two_replicas_and_leave_nothing(installation: Installation) -> None:
    sandbox = installation.cluster.sandbox
    installation.uninstall()
    wait_until_policies_are_served(sandbox)
    sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-k", BASE)
    installation.wait_until_ready()
    assert len({pod["spec"]["nodeName"] for pod in installation.pods()}) == 2
    assert set(installation.restarts().values()) == {0}
    sandbox.kubectl("delete", "-k", BASE, "--wait", "--timeout=240s")
    wait_until(lambda: not sandbox.api.exists(f"/api/v1/namespaces/{NAMESPACE}"), "the namespace to be gone")
    assert objects(sandbox) == set()
