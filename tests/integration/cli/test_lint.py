"""`respread lint` and the API server agree on what is rejected, and the admission policy warns of what lint finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from respread_cli.main import respread
from respread_sandbox import Sandbox, SandboxError
from tests.integration.workloads import wait_until
from tests.lint_manifests import GOOD, SOFT, ZONE, deployment

WARNINGS = Path(__file__).parents[3] / "manifests" / "components" / "admission-warnings"
NOWHERE = {"matchLabels": {"app": "wbe"}}
OTHERS = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}
BARE = {key: GOOD[key] for key in ("maxSkew", "topologyKey", "whenUnsatisfiable")}


def in_default(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}


def rules_found(manifest: dict[str, Any], level: str = "error") -> set[str]:
    done = CliRunner().invoke(respread, ["lint", "-", "-o", "json"], input=json.dumps(manifest))
    found = json.loads(done.stdout)["findings"]
    return {each["rule"] for each in found if each["level"] == level and each["switchedOffBy"] is None}


def answer_to(sandbox: Sandbox, manifest: dict[str, Any], *options: str) -> str:
    """Return what kubectl says of a manifest, empty if it says nothing."""
    try:
        sandbox.kubectl("create", "--dry-run=server", *options, "-f", "-", stdin=json.dumps(manifest))
    except SandboxError as error:
        return str(error)
    return ""


@pytest.mark.controlplane
@pytest.mark.parametrize(
    "constraints",
    [
        [GOOD],
        [SOFT],
        [GOOD, SOFT],
        [GOOD, GOOD],
        [{**SOFT, "minDomains": 2}],
        [{**GOOD, "minDomains": 0}],
        [{**GOOD, "minDomains": 3}],
        [{**GOOD, "maxSkew": 0}],
        [{**BARE, "matchLabelKeys": ["app"]}],
        [{**GOOD, "topologyKey": ""}],
        [{**GOOD, "whenUnsatisfiable": "Sometimes"}],
        [{**GOOD, "nodeTaintsPolicy": "Honour"}],
        [{**GOOD, "labelSelector": {"matchLabels": {"app": "no label value!"}}}],
        [{key: value for key, value in GOOD.items() if key != "maxSkew"}],
    ],
    ids=lambda each: json.dumps(each)[:80],
)
def test_lint_rejects_what_the_api_server_rejects(sandbox: Sandbox, constraints: list[dict[str, Any]]) -> None:
    manifest = in_default(deployment(*constraints))
    rejected = "is invalid" in (said := answer_to(sandbox, manifest)) or "is not valid" in said
    assert ("RejectedConstraint" in rules_found(manifest)) == rejected, said


@pytest.mark.controlplane
def test_lint_rejects_a_deployment_whose_pods_the_api_server_rejects(sandbox: Sandbox) -> None:
    manifest = in_default(deployment({**GOOD, "matchLabelKeys": ["app"]}))
    assert rules_found(manifest) == {"RejectedConstraint"}
    template = manifest["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "x"}}
    assert "exists in both matchLabelKeys and labelSelector" in answer_to(sandbox, in_default(pod))


CASES: list[tuple[str | None, dict[str, Any]]] = [
    (None, deployment(GOOD, {**SOFT, "topologyKey": "kubernetes.io/hostname"})),
    ("SelectorMatchesNothing", deployment(BARE)),
    ("SelectorMatchesNothing", deployment({**BARE, "labelSelector": {}})),
    ("SelectorMissesOwnPods", deployment({**GOOD, "labelSelector": NOWHERE})),
    ("SelectorMissesOwnPods", deployment({**GOOD, "labelSelector": OTHERS})),
    (None, deployment({**GOOD, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}})),
    ("OneDomain", deployment(GOOD, nodeSelector={ZONE: "zone-a"})),
    ("TooFewDomains", deployment({**GOOD, "minDomains": 2}, nodeSelector={ZONE: "zone-a"})),
    ("UnavailableDomains", deployment({**GOOD, "nodeAffinityPolicy": "Ignore"}, nodeSelector={ZONE: "zone-a"})),
]


@pytest.fixture(scope="module")
def warning(sandbox: Sandbox) -> Sandbox:
    """A control plane with the admission policy in force."""
    for manifest in WARNINGS.glob("validating*.yaml"):
        sandbox.apply(manifest)
    bad = in_default(deployment(BARE))
    wait_until(
        lambda: "Validation failed" in answer_to(sandbox, bad, "--warnings-as-errors"), "the admission policy to warn"
    )
    return sandbox


@pytest.mark.controlplane
@pytest.mark.parametrize(("rule", "manifest"), CASES, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(CASES)])
def test_kubectl_shows_a_warning_of_what_lint_calls_an_error(
    warning: Sandbox, rule: str | None, manifest: dict[str, Any]
) -> None:
    said = answer_to(warning, in_default(manifest), "--warnings-as-errors")
    assert rules_found(manifest) == ({rule} if rule else set())
    if rule is None:
        assert said == ""
    else:
        assert "Warning: Validation failed for ValidatingAdmissionPolicy 'respread-warnings'" in said
        assert f"{rule}: " in said
        assert said.count("Warning: Validation failed") == 1
        assert answer_to(warning, in_default(manifest)) == ""  # it is only a warning
        off = in_default(manifest)
        off["metadata"]["annotations"] = {"respread.dev/lint-off": f"ZoneAndHostname, {rule}"}
        assert "Validation failed" not in answer_to(warning, off, "--warnings-as-errors")
        assert rules_found(off) == set()


@pytest.mark.controlplane
def test_the_admission_policy_has_no_errors_of_types_and_covers_other_kinds(warning: Sandbox) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/respread-warnings"
    wait_until(lambda: "typeChecking" in warning.api.get(path)["status"], "the types of the policy to be checked")
    assert warning.api.get(path)["status"]["typeChecking"].get("expressionWarnings", []) == []
    template = deployment({**GOOD, "labelSelector": NOWHERE})["spec"]["template"]
    job = {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
    sts = {"template": template, "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web"}
    for kind, api_version, spec in (("Job", "batch/v1", job), ("StatefulSet", "apps/v1", sts)):
        manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
        assert "SelectorMissesOwnPods: " in answer_to(warning, manifest, "--warnings-as-errors")
