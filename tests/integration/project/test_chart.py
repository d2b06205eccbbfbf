"""The Helm chart on a real API server: it renders the same objects as kustomize, installs, upgrades and uninstalls."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from respread import __version__
from respread_sandbox import Sandbox, SandboxApi
from tests.api_schemas import LOCATION, write_schemas
from tests.faults.operators import LEASE, NAMESPACE
from tests.go_programs import PROGRAMS, find_or_build
from tests.integration.cli.ui_process import Page
from tests.integration.definitions import DEFINITIONS, delete_definitions
from tests.integration.helm import CHART, Helm, helm_for
from tests.integration.operator_process import OperatorProcess, wait_until_policies_are_served
from tests.integration.prometheus_operator import define_monitoring
from tests.processes import wait_until

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "manifests"
POLICIES = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"
LABELS_OF_THE_TOOL = {"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "helm.sh/chart"}
INSTALL = ("upgrade", "--install", "respread", str(CHART), "--namespace", NAMESPACE, "--create-namespace")
INSTALL_SOONER = (*INSTALL, "--disable-openapi-validation")
"""Without looking up every field in the API server's document, which takes Helm half of its time."""

pytestmark = pytest.mark.timeout(1800)
"""The fixture builds Helm first if it is not in the cache."""


@pytest.fixture(scope="module")
def helm(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return helm_for(sandbox, tmp_path_factory.mktemp("helm"))


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects of a YAML text by kind and name, without the expected differences of kustomize and Helm."""
    found = {}
    for each in yaml.safe_load_all(text):
        if each is None or each["kind"] in ("Namespace", "CustomResourceDefinition"):
            continue
        labels = each["metadata"].get("labels", {})
        each["metadata"]["labels"] = {name: value for name, value in labels.items() if name not in LABELS_OF_THE_TOOL}
        found[each["kind"], each["metadata"]["name"]] = each
    return found


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("base", ()),
        ("overlays/enforce", ("policy.spec.mode=Enforce",)),
        ("overlays/prevention", ("prevention.enabled=true",)),
        ("overlays/room", ("room.enabled=true",)),
        ("overlays/network-policy", ("networkPolicy.enabled=true",)),
        ("overlays/admission-warnings", ("admissionWarnings.enabled=true",)),
        (
            "overlays/monitoring",
            (
                "monitoring.serviceMonitor.enabled=true",
                "monitoring.prometheusRule.enabled=true",
                "monitoring.dashboard.enabled=true",
            ),
        ),
    ],
)
def test_the_chart_renders_the_same_objects_as_kustomize(
    helm: Helm, sandbox: Sandbox, overlay: str, values: tuple[str, ...]
) -> None:
    chosen = [argument for each in values for argument in ("--set", each)]
    by_helm = objects(helm("template", "respread", str(CHART), "--namespace", NAMESPACE, *chosen))
    rendered = sandbox.kubectl("kustomize", str(MANIFESTS / overlay))
    by_kustomize = objects(rendered.replace("(\n\n", "(\n"))  # kustomize adds an empty line to a folded expression

    assert by_helm.keys() == by_kustomize.keys()
    for name, expected in by_kustomize.items():
        found = by_helm[name]
        if name[0] == "Deployment":
            (container,) = found["spec"]["template"]["spec"]["containers"]
            assert container.pop("imagePullPolicy") == "IfNotPresent"  # the API server's default for a tag
            container["args"].remove("--helm-release=respread")
        assert found | {"metadata": None} == expected | {"metadata": None}, name
        assert found["metadata"]["name"] == expected["metadata"]["name"]
        assert found["metadata"].get("namespace") == expected["metadata"].get("namespace")
        assert expected["metadata"]["labels"].items() <= found["metadata"]["labels"].items()


def test_a_policy_that_needs_a_permission_is_refused_unless_the_chart_grants_it(helm: Helm) -> None:
    def spec_of_default(*values: str) -> dict[str, Any]:
        chosen = [argument for each in values for argument in ("--set", each)]
        rendered = objects(helm("template", "respread", str(CHART), "--namespace", NAMESPACE, *chosen))
        spec: dict[str, Any] = rendered["ClusterRebalancePolicy", "default"]["spec"]
        return spec

    prevents = "policy.spec.prevention.podDeletionCost=Enabled"
    with pytest.raises(AssertionError, match=r"podDeletionCost is Enabled.*Set prevention\.enabled=true"):
        spec_of_default(prevents)
    with pytest.raises(AssertionError, match=r"provision: Request.*zone.*Set room\.enabled=true"):
        spec_of_default(*ASKS_FOR_ROOM)
    assert spec_of_default()["mode"] == "DryRun"
    assert spec_of_default("prevention.enabled=true")["prevention"] == {"podDeletionCost": "Enabled"}
    others = "policy.spec.prevention.costsOfOthers=Replace"
    enabled = {"podDeletionCost": "Enabled", "costsOfOthers": "Replace"}
    assert spec_of_default("prevention.enabled=true", others)["prevention"] == enabled
    disabled = "policy.spec.prevention.podDeletionCost=Disabled"
    assert spec_of_default("prevention.enabled=true", disabled)["prevention"] == {"podDeletionCost": "Disabled"}
    asked = spec_of_default("room.enabled=true", *ASKS_FOR_ROOM)["constraints"]["expectedDomains"]
    assert asked == [{"topologyKey": "topology.kubernetes.io/zone", "provision": "Request"}]


ASKS_FOR_ROOM = (
    "policy.spec.constraints.expectedDomains[0].topologyKey=topology.kubernetes.io/zone",
    "policy.spec.constraints.expectedDomains[0].provision=Request",
)
EVERYTHING = (
    "prevention.enabled=true",
    "room.enabled=true",
    "networkPolicy.enabled=true",
    "admissionWarnings.enabled=true",
    "ui.enabled=true",
    "ui.service.enabled=true",
    "ui.extraContainers[0].name=proxy",
    "ui.extraContainers[0].image=proxy",
    "ui.prometheus=http://prometheus:9090",
    "ui.allowedHosts[0]=page.example",
    "monitoring.dashboard.enabled=true",
    "monitoring.serviceMonitor.enabled=true",
    "monitoring.serviceMonitor.interval=15s",
    "monitoring.secure.enabled=true",
    "monitoring.secure.secretName=metrics",
    "monitoring.prometheusRule.enabled=true",
    "schedulerConfiguration.content=kind: KubeSchedulerConfiguration",
    "tolerations[0].operator=Exists",
    "extraArgs[0]=--log-level=debug",
)


@pytest.mark.parametrize("values", [(), EVERYTHING])
def test_the_api_server_knows_every_rendered_field(helm: Helm, sandbox: Sandbox, values: tuple[str, ...]) -> None:
    define_all(sandbox)
    namespace = sandbox.create_namespace(f"rendered-{secrets.token_hex(3)}")
    chosen = [argument for each in values for argument in ("--set", each)]
    rendered = helm("template", "respread", str(CHART), "--namespace", namespace, *chosen)
    said = sandbox.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)
    assert len(said.splitlines()) == len([each for each in yaml.safe_load_all(rendered) if each is not None])


COMMON_LABEL = ("example.com/team", "platform")
COMMON_ANNOTATION = ("example.com/cost-center", "42")
ADAPTED: dict[str, Any] = {
    "fullnameOverride": "spread",
    "commonLabels": dict([COMMON_LABEL]),
    "commonAnnotations": dict([COMMON_ANNOTATION]),
    "crds": {"enabled": True},
    "prevention": {"enabled": True},
    "room": {"enabled": True},
    "policies": [
        {"name": "nights", "spec": {"mode": "DryRun", "prevention": {"podDeletionCost": "Enabled"}}},
        {"name": "own", "namespace": "default", "spec": {"mode": "Enforce"}},
    ],
    "serviceAccount": {"create": False, "name": "made-elsewhere"},
    "deployment": {"labels": {"tier": "ops"}, "annotations": {"note": "1"}, "strategy": {"type": "Recreate"}},
    "service": {"labels": {"tier": "ops"}, "annotations": {"note": "2"}},
    "podLabels": {"tier": "ops"},
    "podAnnotations": {"note": "3"},
    "podSecurityContext": {"runAsUser": 1000, "runAsNonRoot": True},
    "securityContext": {"readOnlyRootFilesystem": True},
    "terminationGracePeriodSeconds": 10,
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["192.0.2.1"]},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
    "extraVolumes": [{"name": "authority", "configMap": {"name": "authority"}}],
    "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/authority", "readOnly": True}],
    "extraContainers": [{"name": "proxy", "image": "registry.example.com/proxy:1"}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authority"}},
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-more}\n",
    ],
    "podDisruptionBudget": {"minAvailable": "50%"},
    "schedulerConfiguration": {"content": "kind: KubeSchedulerConfiguration"},
    "networkPolicy": {"enabled": True, "apiServerTo": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]},
    "monitoring": {
        "serviceMonitor": {
            "enabled": True,
            "namespace": "default",
            "annotations": {"note": "4"},
            "labels": {"release": "monitoring"},
            "scrapeTimeout": "9s",
            "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}],
            "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}],
        },
        "prometheusRule": {"enabled": True, "namespace": "default"},
        "dashboard": {"enabled": True, "namespace": "default", "annotations": {"grafana_folder": "Operators"}},
    },
}
"""Values as a platform team with rules of its own sets them: each that adds to an object or renames one."""


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with these values."""
    file = tmp_path_factory.mktemp("values") / "values.yaml"
    file.write_text(yaml.safe_dump(ADAPTED), encoding="utf-8")
    return file


def test_the_api_server_knows_every_field_of_an_adapted_release(
    helm: Helm, sandbox: Sandbox, schemas: Path, adapted: Path
) -> None:
    namespace = sandbox.create_namespace(f"adapted-{secrets.token_hex(3)}")
    rendered = helm("template", "respread", str(CHART), "--namespace", namespace, "--values", str(adapted))
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    said = sandbox.kubectl(*apply, stdin=rendered)
    assert len(said.splitlines()) == len([each for each in yaml.safe_load_all(rendered) if each is not None])
    judged = conforming(schemas, rendered)
    assert (judged["summary"]["invalid"], judged["summary"]["errors"]) == (0, 0), judged


def test_names_labels_and_annotations_are_those_of_the_values(helm: Helm, adapted: Path) -> None:
    rendered = helm("template", "respread", str(CHART), "--namespace", "elsewhere", "--values", str(adapted))
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(rendered)}
    for (kind, name), each in found.items():
        if kind == "ConfigMap" and name in ("authority", "respread-more"):
            continue  # of extraObjects, which are what users write
        assert COMMON_LABEL in each["metadata"]["labels"].items(), name
        assert COMMON_ANNOTATION in each["metadata"]["annotations"].items(), name
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "respread"
    named = {name for kind, name in found if kind != "CustomResourceDefinition" and not name.startswith("spread")}
    of_users = {"default", "nights", "own", "authority", "respread-more"}
    # The messages of the commands name the role to ask for.
    assert named == {"respread", "respread-placeholder", "respread-cluster-view", *of_users}
    assert [kind for kind, name in found if name == "respread"] == ["Lease"]
    assert ("ServiceAccount", "made-elsewhere") not in found
    bindings = [each for (kind, _), each in found.items() if kind.endswith("RoleBinding")]
    assert len(bindings) == 4
    assert {each["subjects"][0]["name"] for each in bindings} == {"made-elsewhere"}

    deployment = found["Deployment", "spread"]
    assert {"tier": "ops"}.items() <= deployment["metadata"]["labels"].items()
    assert deployment["metadata"]["annotations"]["note"] == "1"
    template = deployment["spec"]["template"]
    assert {"tier": "ops", **deployment["spec"]["selector"]["matchLabels"]}.items() <= template["metadata"][
        "labels"
    ].items()
    pod = template["spec"]
    assert (pod["serviceAccountName"], pod["securityContext"]["runAsUser"]) == ("made-elsewhere", 1000)
    container, proxy = pod["containers"]
    assert (container["name"], proxy["name"]) == ("respread", "proxy")
    assert {each["name"] for each in pod["volumes"]} == {"scheduler-configuration", "authority"}
    assert {each["name"] for each in container["volumeMounts"]} == {"scheduler-configuration", "authority"}
    assert found["Service", "spread"]["metadata"]["annotations"]["note"] == "2"
    assert found["PodDisruptionBudget", "spread"]["spec"]["minAvailable"] == "50%"
    assert "maxUnavailable" not in found["PodDisruptionBudget", "spread"]["spec"]
    monitor = found["ServiceMonitor", "spread"]
    assert monitor["metadata"]["namespace"] == "default"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["elsewhere"]}
    assert found["RebalancePolicy", "own"]["metadata"]["namespace"] == "default"
    assert found["ClusterRebalancePolicy", "nights"]["spec"]["prevention"] == {"podDeletionCost": "Enabled"}


def test_labels_of_users_do_not_replace_those_that_select_the_pods(helm: Helm) -> None:
    chosen = ("--set", r"podLabels.app\.kubernetes\.io/name=mine,commonLabels.app\.kubernetes\.io/component=mine")
    deployment = objects(helm("template", "respread", str(CHART), *chosen))["Deployment", "respread"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector == {"app.kubernetes.io/name": "respread", "app.kubernetes.io/component": "operator"}
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_alerts_name_the_namespace_and_the_deployment_of_the_release(helm: Helm) -> None:
    where = ("--namespace", "elsewhere", "--set", "monitoring.prometheusRule.enabled=true,fullnameOverride=spread")
    rendered = objects(helm("template", "respread", str(CHART), *where))
    (rule,) = (each for (kind, _), each in rendered.items() if kind == "PrometheusRule")
    text = json.dumps(rule)
    assert "respread-system" not in text
    assert "the Deployment spread in elsewhere" in text
    assert "the Lease respread in elsewhere" in text


def define_all(sandbox: Sandbox) -> None:
    """Define Respread's kinds, and those of the Prometheus operator."""
    sandbox.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
    wait_until_policies_are_served(sandbox)
    define_monitoring(sandbox)


@pytest.fixture(scope="module")
def schemas(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schemas of the kinds that the sandbox's API server serves, with file names for kubeconform."""
    define_all(sandbox)
    folder = tmp_path_factory.mktemp("schemas")

    def served() -> bool:
        openapi = sandbox.api.get("/openapi/v2")
        write_schemas(openapi, folder)
        policies = folder / "respread.dev" / "v1alpha1" / "clusterrebalancepolicy.json"
        rules = folder / "monitoring.coreos.com" / "v1" / "prometheusrule.json"
        return policies.exists() and rules.exists()

    wait_until(served, "all definitions to be in the OpenAPI document")
    return folder


def conforming(schemas: Path, rendered: str) -> dict[str, Any]:
    """Return kubeconform's output for objects."""
    done = subprocess.run(
        [
            find_or_build(PROGRAMS["kubeconform"]),
            *("-output", "json", "-summary", "-strict"),
            *("-schema-location", f"{schemas}/{LOCATION}"),
        ],
        input=rendered,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("values", [(), EVERYTHING])
def test_kubeconform_knows_every_rendered_field(helm: Helm, schemas: Path, values: tuple[str, ...]) -> None:
    chosen = [argument for each in values for argument in ("--set", each)]
    rendered = helm("template", "respread", str(CHART), "--include-crds", *chosen)
    said = conforming(schemas, rendered)
    assert said["summary"] == {"valid": rendered.count("\nkind: "), "invalid": 0, "errors": 0, "skipped": 0}, said
    misspelt = conforming(schemas, rendered.replace("serviceAccountName:", "serviceAccountNmae:"))
    deployments = ["respread", "respread-ui"][: 1 + bool(values)]
    assert sorted(each["name"] for each in misspelt["resources"]) == deployments
    assert misspelt["summary"]["invalid"] == len(deployments)


def test_kubeconform_knows_every_field_of_the_manifests(sandbox: Sandbox, schemas: Path) -> None:
    folders = (MANIFESTS / "base", *(MANIFESTS / "overlays").iterdir())
    rendered = "\n---\n".join(sandbox.kubectl("kustomize", str(folder)) for folder in folders)
    said = conforming(schemas, rendered)
    assert (said["summary"]["invalid"], said["summary"]["errors"]) == (0, 0), said
    assert said["summary"]["valid"] == len(list(yaml.safe_load_all(rendered)))


def test_the_page_in_the_cluster_reads_all_that_it_shows_and_can_not_write(helm: Helm, sandbox: Sandbox) -> None:
    define_all(sandbox)
    namespace = sandbox.create_namespace(f"ui-{secrets.token_hex(3)}")
    rendered = helm("template", "respread", str(CHART), "--namespace", namespace, "--set", "ui.enabled=true")
    found = objects(rendered)
    wanted = [found[kind, "respread-ui"] for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")]
    assert {verb for rule in wanted[1]["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert ("Service", "respread-ui") not in found  # the page listens on the loopback interface of its pod
    sandbox.apply(yaml.safe_dump_all(wanted))
    try:
        page = Page(sandbox.kubeconfig_for_service_account(namespace, "respread-ui"), "--no-token")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", page.url)
        content = page.get("api/cluster")
        assert [note for note in content["overview"]["notes"] if "left out" in note.lower()] == []
        assert page.get("api/history")["unreadable"] is None
        assert page.get("api/nodes") is not None
        assert page.end() == 0
        who = f"--as=system:serviceaccount:{namespace}:respread-ui"
        allowed = sandbox.kubectl("auth", "can-i", "--list", who, "--no-headers")
        of_everybody = sandbox.kubectl("auth", "can-i", "--list", "--no-headers", who.replace("respread-ui", "nobody"))
        own = {line for line in allowed.splitlines() if line not in of_everybody.splitlines()}
        assert own
        assert {verbs for line in own for verbs in re.findall(r"\[([a-z ]*)\]$", line)} == {"list watch", "list"}
    finally:
        sandbox.kubectl("delete", "clusterrole,clusterrolebinding", "respread-ui")


def test_a_service_of_the_page_needs_a_proxy_that_asks_who_somebody_is(helm: Helm) -> None:
    with pytest.raises(AssertionError, match=r"ui\.service\.enabled needs a proxy in ui\.extraContainers"):
        helm("template", "respread", str(CHART), "--set", "ui.enabled=true", "--set", "ui.service.enabled=true")


def test_the_chart_passes_lint_and_has_this_version(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_files_named_for_artifact_hub_exist() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    told = {name.rpartition("/")[2]: yaml.safe_load(text) for name, text in chart["annotations"].items()}
    assert [each["image"] for each in told["images"]] == [f"ghcr.io/respread/respread:{__version__}"]
    assert {f"{each['name']}.yaml" for each in told["crds"]} == {path.name for path in (CHART / "crds").iterdir()}
    for link in told["links"]:
        repository, _, page = link["url"].partition("/blob/main/")
        assert repository == chart["home"]
        assert (ROOT / page).is_file()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("replicas=two", "replicas"),
        ("replicas=0", "replicas"),
        ("fullnameOverride=Spread", "fullnameOverride"),
        ("serviceAccount.create=false", "serviceAccount"),
        ("policies[0].name=nights", "spec"),
        ("policy.spec.mode=Evict", "mode"),
        ("image.digest=sha256:short", "digest"),
        ("replica=3", "replica"),
        ("monitoring.serviceMonitor=true", "serviceMonitor"),
        ("monitoring.secure.enabled=true", "secure.secretName"),
        ("monitoring.annotations=true,monitoring.secure.enabled=true", "serviceMonitor"),
    ],
)
def test_an_invalid_value_is_rejected_by_name(helm: Helm, value: str, named: str) -> None:
    with pytest.raises(AssertionError, match=named):
        helm("template", "respread", str(CHART), "--set", value)


@pytest.mark.parametrize(
    ("copy", "of"),
    [
        *((f"crds/{each.name}", f"crds/{each.name}") for each in sorted((ROOT / "crds").glob("*.respread.dev.yaml"))),
        ("files/dashboard.json", "manifests/components/monitoring/dashboard.json"),
        ("files/prometheus-rule.yaml", "manifests/components/monitoring/prometheus-rule.yaml"),
    ],
)
def test_the_copied_files_of_the_chart_are_current(copy: str, of: str) -> None:
    assert (CHART / copy).read_bytes() == (ROOT / of).read_bytes(), "run `make chart-files`"


def test_scheduler_configuration_reaches_the_operator(helm: Helm) -> None:
    content = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    value = f"schedulerConfiguration.content={content}"
    rendered = objects(helm("template", "respread", str(CHART), "--set-literal", value))
    (container,) = rendered["Deployment", "respread"]["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert f"--scheduler-configuration={mount['mountPath']}/scheduler.yaml" in container["args"]
    assert rendered["ConfigMap", "respread-scheduler"]["data"]["scheduler.yaml"] == content


def test_the_notes_name_commands_that_work_and_objects_that_exist(helm: Helm, sandbox: Sandbox) -> None:
    def commands_of(notes: str) -> list[str]:
        return re.findall(r"^  kubectl ([^#\n]*)", notes, re.MULTILINE)

    notes = helm(*INSTALL_SOONER)
    assert "By the policy `default` it plans and reports, and evicts nothing." in notes
    assert (
        "To let it evict, upgrade this release with the same chart and values, and policy.spec.mode=Enforce." in notes
    )
    assert len(commands_of(notes)) == 3
    for command in commands_of(notes):
        if "logs" not in command:  # simulated nodes have no logs
            assert "default" in sandbox.kubectl(*command.split())
    notes = helm(*INSTALL_SOONER, "--set", "policy.spec.mode=Enforce")
    assert "The policy `default` evicts pods where that restores their topology spread." in notes
    assert "To let it evict" not in notes
    assert sandbox.api.get(f"{POLICIES}/default")["spec"]["mode"] == "Enforce"
    notes = helm(*INSTALL_SOONER, "--set", "policy.create=false,fullnameOverride=spread")
    assert "It does nothing yet, because there is no policy" in notes
    assert not [each for each in commands_of(notes) if "default" in each]
    assert sandbox.api.exists(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/spread")
    assert any(each.strip().endswith("deployment/spread") for each in commands_of(notes))
    helm("uninstall", "respread", "--namespace", NAMESPACE)


def test_helm_waits_until_the_policy_is_reconciled(helm: Helm, sandbox: Sandbox, tmp_path: Path) -> None:
    helm(*INSTALL_SOONER, "--set", "policy.spec.mode=Enforce")
    with OperatorProcess(sandbox, tmp_path) as operator:  # only with the permissions of the chart
        operator.wait_until_ready()
        helm(*INSTALL_SOONER, "--wait", "--timeout", "120s", "--set", "policy.spec.mode=DryRun")
        default = sandbox.api.get(f"{POLICIES}/default")
        assert default["status"]["observedGeneration"] == default["metadata"]["generation"]
        nowhere = 'policy.spec.windows=[{"schedule": "0 2 * * *", "duration": "1h", "timeZone": "Mars"}]'
        with pytest.raises(AssertionError, match=r"(?s)default.*spec\.windows\[0\]\.timeZone"):
            helm(*INSTALL_SOONER, "--wait", "--timeout", "120s", "--set-json", nowhere)
        assert operator.stop() == 0
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []
    helm("uninstall", "respread", "--namespace", NAMESPACE)


def test_a_release_is_installed_upgraded_and_uninstalled(helm: Helm, sandbox: Sandbox) -> None:
    helm(*INSTALL)
    sandbox.kubectl("rollout", "status", "deployment/respread", "-n", NAMESPACE, "--timeout=120s")
    assert sandbox.api.get(f"{POLICIES}/default")["spec"]["mode"] == "DryRun"
    operator = SandboxApi(sandbox.kubeconfig_for_service_account(NAMESPACE, "respread"))
    try:
        operator.get("/api/v1/pods")  # its permissions exist
    finally:
        operator.close()
    mine = {"apiVersion": "respread.dev/v1alpha1", "kind": "ClusterRebalancePolicy", "spec": {}}
    sandbox.api.request("POST", POLICIES, mine | {"metadata": {"name": "mine"}})

    helm(*INSTALL, "--reuse-values", "--set", "policy.spec.mode=Enforce")
    assert sandbox.api.get(f"{POLICIES}/default")["spec"]["mode"] == "Enforce"
    helm("rollback", "respread", "1", "--namespace", NAMESPACE)
    assert sandbox.api.get(f"{POLICIES}/default")["spec"]["mode"] == "DryRun"

    helm("uninstall", "respread", "--namespace", NAMESPACE)
    names = [each["metadata"]["name"] for each in sandbox.api.get(POLICIES)["items"]]
    assert names == ["mine"]  # the CRDs stay, and so do the policies of users


DEFINITION = f"{DEFINITIONS}/clusterrebalancepolicies.respread.dev"


def test_upgrades_bring_the_definitions_of_the_new_version_if_the_release_has_them(
    helm: Helm, sandbox: Sandbox, tmp_path: Path
) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(CHART, newer)
    file = newer / "crds" / "clusterrebalancepolicies.respread.dev.yaml"
    definition = yaml.safe_load(file.read_text(encoding="utf-8"))
    definition["spec"]["names"]["shortNames"].append("newer")
    file.write_text(yaml.safe_dump(definition), encoding="utf-8")

    def upgrade(chart: Path, *options: str) -> None:
        helm(*(str(chart) if each == str(CHART) else each for each in INSTALL_SOONER), *options)

    def is_newer() -> bool:
        return "newer" in sandbox.api.get(DEFINITION)["spec"]["names"]["shortNames"]

    # kubectl owns the fields of those that another test has applied.
    delete_definitions(sandbox, *(each.stem for each in (CHART / "crds").iterdir()))
    upgrade(CHART)
    upgrade(newer)
    assert not is_newer()  # Helm's own rule for a chart's folder `crds`
    with pytest.raises(AssertionError, match="invalid ownership metadata"):
        upgrade(newer, "--set", "crds.enabled=true")
    upgrade(newer, "--set", "crds.enabled=true", "--take-ownership")
    assert is_newer()
    upgrade(CHART, "--set", "crds.enabled=true")
    assert not is_newer()
    upgrade(CHART)
    assert sandbox.api.exists(DEFINITION)  # kept, although the release has none any more
    helm("uninstall", "respread", "-n", NAMESPACE)
    assert sandbox.api.exists(DEFINITION)


def test_a_first_installation_takes_the_definitions_over_and_deletes_them_only_if_told(
    helm: Helm, sandbox: Sandbox
) -> None:
    def exist() -> bool:
        return any(sandbox.api.exists(f"{DEFINITIONS}/{each.stem}") for each in (CHART / "crds").iterdir())

    helm(*INSTALL_SOONER, "--set", "crds.enabled=true", "--take-ownership")
    helm("uninstall", "respread", "-n", NAMESPACE)
    assert exist()
    notes = helm(*INSTALL_SOONER, "--set", "crds.enabled=true,crds.keep=false", "--take-ownership")
    assert "`helm uninstall` deletes the CustomResourceDefinitions" in notes
    wait_until_policies_are_served(sandbox)  # see delete_definitions
    helm("uninstall", "respread", "-n", NAMESPACE)
    wait_until(lambda: not exist(), "the definitions to be deleted")


def test_upgrades_leave_the_lease_to_its_leader_and_uninstalling_deletes_it(
    helm: Helm, sandbox: Sandbox, tmp_path: Path
) -> None:
    helm(*INSTALL_SOONER)
    with OperatorProcess(sandbox, tmp_path) as operator:
        wait_until(lambda: "holderIdentity" in sandbox.api.get(LEASE).get("spec", {}), "a leader")
        before = sandbox.api.get(LEASE)["spec"]
        helm(*INSTALL_SOONER, "--set", "policy.spec.mode=Enforce")
        helm("rollback", "respread", "1", "--namespace", NAMESPACE)
        wait_until(lambda: sandbox.api.get(LEASE)["spec"]["renewTime"] > before["renewTime"], "a renewal")
        after = sandbox.api.get(LEASE)["spec"]
        assert {**after, "renewTime": ""} == {**before, "renewTime": ""}
        helm("uninstall", "respread", "--namespace", NAMESPACE)
        wait_until(lambda: "The Lease is out of reach" in operator.log.read_text(), "the leader to lose it")
        assert not sandbox.api.exists(LEASE)
        assert operator.stop() == 0
    assert not sandbox.api.exists(LEASE)


def test_a_lease_that_helm_did_not_create_is_left_alone(helm: Helm, sandbox: Sandbox) -> None:
    helm(*INSTALL_SOONER)
    kept = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "respread"}}
    sandbox.api.request("DELETE", LEASE)
    helm("uninstall", "respread", "--namespace", NAMESPACE)
    sandbox.api.request("POST", LEASE.removesuffix("/respread"), kept)
    helm(*INSTALL_SOONER)
    helm(*INSTALL_SOONER, "--set", "policy.spec.mode=Enforce")
    helm("uninstall", "respread", "--namespace", NAMESPACE)
    assert sandbox.api.exists(LEASE)
    sandbox.api.request("DELETE", LEASE)
