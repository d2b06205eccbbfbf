"""The manifests on a real API server: they apply unchanged, run as `restricted`, and grant only what is documented."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
import yaml

from respread import __version__
from respread_sandbox import ApiError, Sandbox, SandboxApi, SandboxError, SandboxOptions

ROOT = Path(__file__).parents[3]
BASE = ROOT / "manifests" / "base"
ENFORCE = ROOT / "manifests" / "overlays" / "enforce"
MONITORING = ROOT / "manifests" / "overlays" / "monitoring"
NETWORK_POLICY = ROOT / "manifests" / "overlays" / "network-policy"
PREVENTION = ROOT / "manifests" / "overlays" / "prevention"
KUSTOMIZATIONS = (BASE, ENFORCE, MONITORING, NETWORK_POLICY, PREVENTION)

NAMESPACE = "respread-system"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


Render: TypeAlias = Callable[[Path], list[dict[str, Any]]]


class Right(NamedTuple):
    """A permission."""

    verb: str
    group: str
    resource: str
    """The resource, with its subresource such as `pods/eviction`."""


def rights(verbs: str, group: str, resources: str) -> set[Right]:
    return {Right(verb, group, resource) for verb in verbs.split() for resource in resources.split()}


EVERYWHERE = (
    rights("list watch", "", "pods nodes namespaces services persistentvolumeclaims persistentvolumes")
    | rights("get", "", "pods replicationcontrollers")
    | rights("create", "", "pods/eviction")
    | rights("get", "apps", "controllerrevisions deployments replicasets statefulsets")
    | rights("get", "argoproj.io", "rollouts")
    | rights("get", "apps.kruise.io", "clonesets")
    | rights("list", "", "limitranges resourcequotas")
    | rights("list watch", "storage.k8s.io", "storageclasses csinodes")
    | rights("list watch", "scheduling.k8s.io", "priorityclasses")
    | rights("list watch", "policy", "poddisruptionbudgets")
    | rights("list watch", "respread.dev", "clusterrebalancepolicies rebalancepolicies")
    | rights("patch", "respread.dev", "clusterrebalancepolicies/status rebalancepolicies/status")
    | rights("list create patch", "respread.dev", "clusterrebalancepolicyrecords rebalancepolicyrecords")
    | rights("create list patch", "events.k8s.io", "events")
)
IN_ITS_NAMESPACE = rights("create", "coordination.k8s.io", "leases")
ON_ITS_LEASE = rights("get update", "coordination.k8s.io", "leases")


@pytest.fixture(scope="module")
def installed(sandbox: Sandbox) -> Sandbox:
    """A cluster with the base installed as in docs/install.md."""
    install(sandbox, BASE)
    return sandbox


def install(sandbox: Sandbox, kustomization: Path) -> str:
    sandbox.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
    sandbox.wait_for_definitions(*(path.stem for path in (ROOT / "crds").glob("*.respread.dev.yaml")))
    return sandbox.kubectl("apply", "--server-side", "--validate=strict", "-k", str(kustomization))


@pytest.fixture(scope="module")
def render(sandbox: Sandbox) -> Render:
    """Return the objects as kubectl's kustomize builds them."""
    text = {path: sandbox.kubectl("kustomize", str(path)) for path in KUSTOMIZATIONS}
    return lambda path: list(yaml.safe_load_all(text[path]))


def the(objects: list[dict[str, Any]], kind: str, name: str = "respread") -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.1)


def disruptions_allowed(sandbox: Sandbox) -> int | None:
    """Return the allowed disruptions of the operator's budget."""
    budget = sandbox.api.get(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/respread")
    allowed: int | None = budget.get("status", {}).get("disruptionsAllowed")
    return allowed


# -- rendering -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_every_object_has_the_recommended_labels(render: Render, kustomization: Path) -> None:
    for each in render(kustomization):
        labels = each["metadata"].get("labels", {})
        assert labels.get("app.kubernetes.io/name") == "respread", each["metadata"]["name"]
        assert labels["app.kubernetes.io/part-of"] == "respread"
        assert labels["app.kubernetes.io/managed-by"] == "kustomize"


def test_image_and_labels_have_this_version(render: Render) -> None:
    pod = the(render(BASE), "Deployment")["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"] == f"ghcr.io/respread/respread:{__version__}"
    assert pod["metadata"]["labels"]["app.kubernetes.io/version"] == __version__
    assert {each["metadata"]["labels"]["app.kubernetes.io/version"] for each in render(BASE)} == {__version__}
    assert f"ARG VERSION={__version__}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_selectors_contain_no_version(render: Render) -> None:
    objects = render(BASE)
    selector = {"app.kubernetes.io/name": "respread", "app.kubernetes.io/component": "operator"}
    assert the(objects, "Deployment")["spec"]["selector"] == {"matchLabels": selector}
    assert the(objects, "PodDisruptionBudget")["spec"]["selector"] == {"matchLabels": selector}
    assert the(objects, "Service")["spec"]["selector"] == selector


def test_the_overlays_differ_from_the_base_only_in_their_purpose(render: Render) -> None:
    base, enforce, monitoring = (render(each) for each in (BASE, ENFORCE, MONITORING))
    added = [each for each in monitoring if each not in base]
    assert sorted(each["kind"] for each in added) == ["ConfigMap", "PrometheusRule", "ServiceMonitor"]
    assert len(monitoring) == len(base) + len(added)
    assert the(base, "ClusterRebalancePolicy", "default")["spec"]["mode"] == "DryRun"
    the(base, "ClusterRebalancePolicy", "default")["spec"]["mode"] = "Enforce"
    assert enforce == base


def test_prevention_adds_a_permission_and_a_policy_field(render: Render) -> None:
    base, prevention = render(BASE), render(PREVENTION)
    added = [each for each in prevention if each["metadata"]["name"] == "respread-prevention"]
    assert sorted(each["kind"] for each in added) == ["ClusterRole", "ClusterRoleBinding"]
    the(base, "ClusterRebalancePolicy", "default")["spec"]["prevention"] = {"podDeletionCost": "Enabled"}
    assert [each for each in prevention if each not in added] == base


def test_the_network_policy_allows_only_scrapes_in_and_api_requests_out(render: Render) -> None:
    base, restricted = render(BASE), render(NETWORK_POLICY)
    (policy,) = added = [each for each in restricted if each not in base]
    assert [each for each in restricted if each not in added] == base
    template, spec = the(base, "Deployment")["spec"]["template"], policy["spec"]
    assert policy["metadata"]["namespace"] == NAMESPACE
    assert spec["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"]
    (inwards,) = spec["ingress"]
    assert [each["port"] for each in inwards["ports"]] == [
        port["name"] for port in template["spec"]["containers"][0]["ports"]
    ]
    outwards = [(each["port"], each["protocol"]) for rule in spec["egress"] for each in rule["ports"]]
    assert sorted(outwards) == [(53, "TCP"), (53, "UDP"), (443, "TCP"), (6443, "TCP")]


def test_the_service_monitor_selects_the_service(render: Render) -> None:
    objects = render(MONITORING)
    monitor, service = the(objects, "ServiceMonitor")["spec"], the(objects, "Service")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [endpoint["port"] for endpoint in monitor["endpoints"]] == [
        port["name"] for port in service["spec"]["ports"]
    ]


# -- applying ------------------------------------------------------------------------------------------------------


def test_applying_again_changes_nothing(installed: Sandbox) -> None:
    assert installed.kubectl("diff", "--server-side", "-k", str(BASE)) == ""


def test_the_default_policy_is_a_dry_run(installed: Sandbox) -> None:
    path = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
    assert installed.api.get(path)["spec"]["mode"] == "DryRun"
    installed.kubectl("apply", "--server-side", "--validate=strict", "-k", str(ENFORCE))
    assert installed.api.get(path)["spec"]["mode"] == "Enforce"
    installed.kubectl("apply", "--server-side", "--validate=strict", "-k", str(BASE))
    assert installed.api.get(path)["spec"]["mode"] == "DryRun"


def test_both_replicas_run_on_different_nodes_behind_the_service_and_the_budget(installed: Sandbox) -> None:
    installed.kubectl("rollout", "status", "deployment/respread", "-n", NAMESPACE, "--timeout=180s")
    pods = installed.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert {pod["spec"]["priority"] for pod in pods} == {2000000000}
    until(lambda: disruptions_allowed(installed) == 1, "the budget")

    def endpoints() -> list[dict[str, Any]]:
        slices = installed.api.get(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")["items"]
        return [endpoint for each in slices for endpoint in each["endpoints"] or []]

    until(lambda: len(endpoints()) == 2, "the Service's endpoints")


def test_the_namespace_enforces_the_restricted_pod_security_standard(installed: Sandbox, render: Render) -> None:
    namespace = installed.api.get(f"/api/v1/namespaces/{NAMESPACE}")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    template = the(render(BASE), "Deployment")["spec"]["template"]

    def admit(change: Callable[[dict[str, Any]], object]) -> Any:
        pod = yaml.safe_load(yaml.safe_dump({"metadata": {"name": "probe"}, "spec": template["spec"]}))
        change(pod["spec"])
        return installed.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)

    admit(lambda _spec: None)
    for loosen in (
        lambda spec: spec["securityContext"].pop("runAsNonRoot"),
        lambda spec: spec["securityContext"].pop("seccompProfile"),
        lambda spec: spec["containers"][0]["securityContext"].pop("capabilities"),
        lambda spec: spec["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
    ):
        with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
            admit(loosen)


def test_the_container_cannot_write_to_its_image(render: Render) -> None:
    (container,) = the(render(BASE), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_api_server_accepts_the_network_policy(installed: Sandbox) -> None:
    manifest = str(ROOT / "manifests" / "components" / "network-policy" / "network-policy.yaml")
    installed.kubectl("apply", "--server-side", "--validate=strict", "-f", manifest)
    try:
        path = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies/respread"
        selector = installed.api.get(path)["spec"]["podSelector"]["matchLabels"]
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        pods = installed.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={labels}")["items"]
        assert len(pods) == 2
    finally:
        installed.kubectl("delete", "-f", manifest)


# -- permissions ---------------------------------------------------------------------------------------------------


def may(sandbox: Sandbox, user: str, right: Right, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
    body = {"spec": {"user": user, "resourceAttributes": attributes | {"namespace": namespace}}}
    answer = sandbox.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"].get("allowed"))


def granted(sandbox: Sandbox, namespace: str, name: str = "") -> set[Right]:
    """Return the permissions of the operator's account that an account without bindings does not have."""

    def held_by(account: str) -> set[Right]:
        api = SandboxApi(sandbox.kubeconfig_for_service_account(NAMESPACE, account))
        try:
            review = {"spec": {"namespace": namespace}}
            answer = api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)["status"]
        finally:
            api.close()
        assert not answer["incomplete"]
        return {
            Right(verb, group, resource)
            for rule in answer["resourceRules"]
            if name in rule.get("resourceNames", [name])
            for verb in rule["verbs"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }

    return held_by("respread") - held_by("default")


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [
        ("shop", "", EVERYWHERE),
        ("kube-system", "respread", EVERYWHERE),
        (NAMESPACE, "", EVERYWHERE | IN_ITS_NAMESPACE),
        (NAMESPACE, "respread", EVERYWHERE | IN_ITS_NAMESPACE | ON_ITS_LEASE),
    ],
)
def test_the_operator_has_exactly_the_listed_permissions(
    installed: Sandbox, namespace: str, name: str, expected: set[Right]
) -> None:
    assert granted(installed, namespace, name) == expected


def test_prevention_grants_only_the_permission_to_patch_pods(installed: Sandbox) -> None:
    component = str(ROOT / "manifests" / "components" / "prevention" / "cluster-role.yaml")
    installed.kubectl("apply", "--server-side", "--validate=strict", "-f", component)
    try:
        assert granted(installed, "shop") == EVERYWHERE | rights("patch", "", "pods")
    finally:
        installed.kubectl("delete", "-f", component)


def test_room_grants_only_permissions_for_placeholders_in_the_own_namespace(installed: Sandbox) -> None:
    component = str(ROOT / "manifests" / "components" / "room" / "role.yaml")
    installed.kubectl("apply", "--server-side", "--validate=strict", "-f", component)
    try:
        added = rights("create delete list", "apps", "deployments") | rights("create", "", "podtemplates")
        added |= rights("create delete list", "autoscaling.x-k8s.io", "capacitybuffers")
        assert granted(installed, "shop") == EVERYWHERE
        assert granted(installed, NAMESPACE) == EVERYWHERE | IN_ITS_NAMESPACE | added
    finally:
        installed.kubectl("delete", "-f", component)


@pytest.fixture(scope="module")
def as_operator(installed: Sandbox) -> Callable[..., str]:
    """Run kubectl with a token of the operator's ServiceAccount."""
    kubeconfig = installed.kubeconfig_for_service_account(NAMESPACE, "respread")
    return lambda *arguments: installed.kubectl(*arguments, kubeconfig=kubeconfig)


@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", "pod", "-n", NAMESPACE, "--all"),
        ("get", "secrets", "-n", NAMESPACE),
        ("get", "configmaps", "-n", NAMESPACE),
        ("label", "nodes", "--all", "respread.dev/x=y"),
        ("annotate", "pods", "-n", NAMESPACE, "--all", "controller.kubernetes.io/pod-deletion-cost=1"),
        ("scale", "deployment/respread", "-n", NAMESPACE, "--replicas=0"),
        ("patch", "crbp", "default", "--type=merge", "-p", '{"spec":{"mode":"Enforce"}}'),
        ("get", "replicasets", "-n", NAMESPACE),
        ("create", "token", "respread", "-n", NAMESPACE),
        ("exec", "-n", NAMESPACE, "deploy/respread", "--", "true"),
    ],
)
def test_a_token_of_the_operator_is_forbidden_everything_else(
    as_operator: Callable[..., str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SandboxError, match=r"[Ff]orbidden"):
        as_operator(*arguments)


def test_a_token_of_the_operator_reads_the_cluster(as_operator: Callable[..., str]) -> None:
    for resource in (
        "pods",
        "nodes",
        "namespaces",
        "pdb",
        "pvc",
        "pv",
        "sc",
        "csinodes",
        "services",
        "rbp",
        "crbp",
        "pc",
    ):
        as_operator("get", resource, "-A")


def test_a_token_of_the_operator_evicts_and_reports(installed: Sandbox) -> None:
    installed.kubectl("rollout", "status", "deployment/respread", "-n", NAMESPACE, "--timeout=180s")
    until(lambda: disruptions_allowed(installed) == 1, "the budget")
    operator = SandboxApi(installed.kubeconfig_for_service_account(NAMESPACE, "respread"))
    try:
        pod = operator.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"][0]["metadata"]
        eviction = {"metadata": {"name": pod["name"]}, "deleteOptions": {"dryRun": ["All"]}}
        operator.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['name']}/eviction", eviction)
        policy = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
        status = {"status": {"observedGeneration": 1}}
        assert operator.request("PATCH", f"{policy}/status", status)["status"]["observedGeneration"] == 1
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        installed.api.request("DELETE", f"{leases}/respread")
        lease = operator.request("POST", leases, {"metadata": {"name": "respread"}, "spec": {"holderIdentity": "a"}})
        operator.request("PUT", f"{leases}/respread", lease | {"spec": {"holderIdentity": "b"}})
        with pytest.raises(ApiError, match="forbidden"):
            operator.get(f"{leases}/another")
    finally:
        operator.close()


# -- roles for users -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("view", "get list watch"),
        ("edit", "get list watch create update patch delete deletecollection"),
        ("admin", "get list watch create update patch delete deletecollection"),
    ],
)
def test_the_aggregated_roles_include_policies(installed: Sandbox, role: str, allowed: str) -> None:
    namespace, user = installed.create_namespace(f"team-{role}"), f"{role}er"
    installed.kubectl("create", "rolebinding", user, "-n", namespace, f"--clusterrole={role}", f"--user={user}")
    served = installed.api.get("/apis/respread.dev/v1alpha1")["resources"]
    policies = rights(" ".join(VERBS), "respread.dev", " ".join(each["name"] for each in served))

    def holds() -> set[Right]:
        return {right for right in policies if may(installed, user, right, namespace)}

    expected = rights(allowed, "respread.dev", "rebalancepolicies")
    expected |= rights("get list watch", "respread.dev", "rebalancepolicyrecords")
    # These have no namespace, so a binding in one allows no request for them.
    expected |= rights("get list watch", "respread.dev", "clusterrebalancepolicies")
    expected |= rights("get list watch", "respread.dev", "clusterrebalancepolicyrecords")
    until(lambda: holds() == expected, f"the aggregation of {role}: {holds() ^ expected}")
    assert not any(may(installed, user, right, "elsewhere") for right in policies)


def test_removing_the_operator_keeps_crds_and_policies(start_sandbox: Callable[[SandboxOptions], Sandbox]) -> None:
    sandbox = start_sandbox(SandboxOptions(nodes=0))
    install(sandbox, BASE)
    sandbox.create_namespace("shop")
    mine = "/apis/respread.dev/v1alpha1/namespaces/shop/rebalancepolicies"
    types = {"apiVersion": "respread.dev/v1alpha1", "kind": "RebalancePolicy"}
    sandbox.api.request("POST", mine, {**types, "metadata": {"name": "mine"}, "spec": {}})
    sandbox.kubectl("delete", "--wait=false", "-k", str(BASE))
    for plural in ("rebalancepolicies", "clusterrebalancepolicies"):
        definition = sandbox.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.respread.dev")
        assert "deletionTimestamp" not in definition["metadata"]  # its objects would be deleted a moment later
    assert [each["metadata"]["name"] for each in sandbox.api.get(mine)["items"]] == ["mine"]
    deleted = sandbox.api.get("/apis/respread.dev/v1alpha1/clusterrebalancepolicies")["items"]
    assert deleted == []  # the default policy of the base


def test_the_install_guide_names_existing_files() -> None:
    guide = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for path in re.findall(r"-k ((?:manifests|crds)[\w/-]*)", guide):
        assert (ROOT / path / "kustomization.yaml").is_file(), path
    for path in ("base", "overlays/enforce", "overlays/monitoring", "overlays/prevention"):
        assert f"manifests/{path}" in guide
