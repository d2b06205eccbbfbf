"""Respread goes on when the kubelet rotates its token."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.operators import NAMESPACE
from tests.integration.operator_process import audited
from tests.node.installation import Installation, moment
from tests.processes import wait_until

LIFETIME_SECONDS: Final = 600
"""The shortest that the API server allows."""
AFTERWARDS_SECONDS: Final = 75
"""Longer than a watch may be silent, and much longer than the term of the Lease."""
_MOUNTED_AT: Final = "/run/secrets/kubernetes.io/serviceaccount"


def short_lived() -> dict[str, Any]:
    """Return a change of the Deployment: the same volume that pods get by default, with a token that expires soon."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    mount = {"name": "token", "mountPath": f"/var{_MOUNTED_AT}", "readOnly": True}
    pod = {
        "automountServiceAccountToken": False,
        "volumes": [{"name": "token", "projected": {"sources": sources}}],
        "containers": [{"name": "respread", "volumeMounts": [mount]}],
    }
    return {"spec": {"template": {"spec": pod}}}


def token_of(installed: Installation, pod: dict[str, Any]) -> str:
    """Return the token that a pod's container sees."""
    (process,) = installed.node_of(pod).process_ids(pod)
    return Path(f"/proc/{process}/root{_MOUNTED_AT}/token").read_text(encoding="ascii")


def expiry(token: str) -> float:
    """Return the Unix time at which a token expires."""
    payload = token.split(".")[1]
    return float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_rotated_token_interrupts_nothing(installed: Installation) -> None:
    sandbox = installed.cluster.sandbox
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/respread"
    sandbox.api.request("PATCH", path, short_lived(), patch_type="strategic-merge")
    sandbox.kubectl("rollout", "status", "deployment/respread", "-n", NAMESPACE, "--timeout=240s")
    installed.wait_until_ready()
    pod = installed.leader()
    leader, first = installed.lease()["holderIdentity"], token_of(installed, pod)
    over = expiry(first) + AFTERWARDS_SECONDS
    wait_until(lambda: time.time() > over, "the first token to be expired for long", seconds=2 * LIFETIME_SECONDS)
    assert expiry(token_of(installed, pod)) > expiry(first)
    assert audited(sandbox, '"code":401') == []
    lease = installed.lease()
    assert lease["holderIdentity"] == leader
    assert time.time() - moment(lease["renewTime"]) < lease["leaseDurationSeconds"]
    assert set(installed.restarts().values()) == {0}
    installed.uninstall()  # other tests need the chart's own Deployment
