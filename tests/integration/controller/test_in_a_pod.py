"""The operator with no more than a pod gives it: no name of its user, no home, and no file that it can write."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from respread_sandbox import Sandbox
from tests.faults.operators import holder
from tests.integration.operator_process import OperatorProcess, policy, refused, requests
from tests.integration.pod_process import UID, PodProcess
from tests.integration.tls_front import Authority, TlsFront
from tests.processes import wait_until

ROOT = Path(__file__).parents[3]
POLICIES = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"
LACKS = """
import getpass, json, os, pathlib, tempfile
def fails(call):
    try:
        call()
    except Exception:
        return True
lacking = [fails(call) for call in (getpass.getuser, pathlib.Path.home, tempfile.TemporaryFile)]
print(json.dumps([os.getuid(), os.getgid(), lacking]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the ServiceAccount."""
    (folder := tmp_path / "serviceaccount").mkdir()
    return folder


@pytest.fixture
def pod(installed_sandbox: Sandbox, folder: Path) -> PodProcess:
    return PodProcess(installed_sandbox, folder)


def test_the_operator_needs_neither_a_name_of_its_user_nor_files_to_write(
    installed_sandbox: Sandbox, pod: PodProcess, tmp_path: Path
) -> None:
    lacks = subprocess.run(pod.command("-c", LACKS), env=pod.environment(), check=True, capture_output=True)
    assert json.loads(lacks.stdout) == [UID, 0, [True, True, True]]
    with OperatorProcess(installed_sandbox, tmp_path, pod=pod) as operator:
        operator.wait_until_ready()
        wait_until(lambda: holder(installed_sandbox).startswith("respread-0_"), "it to lead by the name of its pod")
        assert operator.stop() == 0
    assert not any(line["level"] in {"error", "critical"} for line in operator.lines())


def test_a_kubeconfig_with_the_key_of_its_user_needs_no_files_to_write(
    installed_sandbox: Sandbox, pod: PodProcess, tmp_path: Path
) -> None:
    user = Authority.create(tmp_path).server("DNS:user")  # which the API server does not ask for
    content = yaml.safe_load(installed_sandbox.kubeconfig.read_text(encoding="utf-8"))
    content["users"][0]["user"].update(
        {
            "client-certificate-data": base64.b64encode(user.certificate.read_bytes()).decode(),
            "client-key-data": base64.b64encode(user.key.read_bytes()).decode(),
        }
    )
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(content), encoding="utf-8")
    command = pod.command("-m", "respread_cli.main", "skew", "--kubeconfig", str(kubeconfig))
    shown = subprocess.run(
        command, env=pod.environment(), cwd=ROOT / "operator", check=False, capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")


def test_without_a_home_the_error_says_that_there_is_no_kubeconfig(pod: PodProcess) -> None:
    environment = {name: value for name, value in pod.environment().items() if name not in pod.service}
    command = pod.command("-m", "respread_cli.main", "skew")
    refused = subprocess.run(
        command, env=environment, cwd=ROOT / "operator", check=False, capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "there is no kubeconfig: ~/.kube/config does not exist" in refused.stderr


def test_the_operator_survives_a_change_of_the_clusters_certificate_authority(
    installed_sandbox: Sandbox, folder: Path, tmp_path: Path
) -> None:
    """The authority's certificates have no key identifiers, as those of old clusters."""
    before, after = (Authority.create(tmp_path, name, identifiers=False) for name in ("before", "after"))
    with TlsFront(installed_sandbox, before.server("IP:127.0.0.1")) as front:
        pod = PodProcess(installed_sandbox, folder, server=front.server)
        pod.write("ca.crt", before.own.text)
        with OperatorProcess(installed_sandbox, tmp_path, pod=pod) as operator:
            operator.wait_until_ready()
            wait_until(lambda: holder(installed_sandbox) != "", "it to lead")
            front.replace(after.server("IP:127.0.0.1"))
            wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in operator.log.read_text(), "a refused certificate")
            pod.write("ca.crt", after.own.text)
            installed_sandbox.apply(json.dumps(policy("later")))
            wait_until(lambda: has_status(installed_sandbox, "later"), "a status of the policy")
            operator.wait_until_ready()
            assert operator.stop() == 0


def has_status(sandbox: Sandbox, name: str) -> bool:
    found = sandbox.api.get(f"{POLICIES}/{name}")
    return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])


@pytest.mark.long
def test_the_operator_uses_a_new_token_long_before_the_old_one_expires(
    installed_sandbox: Sandbox, pod: PodProcess, tmp_path: Path
) -> None:
    with OperatorProcess(installed_sandbox, tmp_path, pod=pod) as operator:
        operator.wait_until_ready()
        (first,) = credentials(installed_sandbox)
        renewed = credential(pod.renew_token())
        assert renewed != first
        wait_until(lambda: renewed in credentials(installed_sandbox), "requests with the new token")

        def all_renewed() -> bool:
            """Watches last up to ten minutes, so only what is requested now has the new token."""
            return {used_by(each) for each in requests(installed_sandbox, "/leases/respread")[-3:]} == {renewed}

        wait_until(all_renewed, "all requests to have the new token")
        assert operator.stop() == 0
    assert refused(installed_sandbox) == []


def credentials(sandbox: Sandbox) -> set[str]:
    """Return the tokens of the operator's requests, as the API server names them."""
    return {used_by(each) for each in requests(sandbox)}


def used_by(entry: dict[str, Any]) -> str:
    (used,) = entry["user"]["extra"]["authentication.kubernetes.io/credential-id"]
    return str(used)


def credential(token: str) -> str:
    """Return how the API server names a token."""
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"JTI={claims['jti']}"
