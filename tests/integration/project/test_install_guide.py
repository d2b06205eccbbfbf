"""The commands of the install guide, the README and docs/ui.md work on a cluster, from installation to removal."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml
from click.testing import CliRunner

from respread_cli.main import respread
from respread_cli.ui.command import ui
from respread_sandbox import Sandbox
from tests.integration.operator_process import wait_until_policies_are_served
from tests.integration.prometheus_operator import define_monitoring
from tests.integration.workloads import create_deployment, deployment, wait_for_ready_pods
from tests.shown_commands import commands

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "install.md"
IMAGE: Final = ROOT / "docs" / "image.md"
README: Final = ROOT / "README.md"
OPERATOR: Final = "respread-system"
POLICY: Final = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"

pytestmark = pytest.mark.timeout(1800)
"""The definitions of the Prometheus operator are downloaded first if they are not in Go's cache."""


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Sandbox:
    """A cluster with the Prometheus operator's kinds, and the workload that the page names."""
    define_monitoring(sandbox)
    create_deployment(sandbox, "default", deployment("web", replicas=1))
    wait_for_ready_pods(sandbox, "default", "web", 1)
    return sandbox


def type_kubectl(cluster: Sandbox, section: str, page: Path = PAGE) -> list[str]:
    """Run the kubectl commands of a section, and return the output of each."""
    said = []
    for program, *arguments in filter(None, commands(page, section)):
        if program != "kubectl" or "logs" in arguments or arguments[0] in {"krew", "respread"}:
            continue  # Simulated pods have no logs; tests/release and test_chart.py have the rest.
        said.append(cluster.kubectl(*(str(ROOT / each) if (ROOT / each).exists() else each for each in arguments)))
        if arguments[-1] == "crds":  # The next commands fail if they are typed before a new definition has a condition.
            wait_until_policies_are_served(cluster)
    assert said
    return said


def test_the_commands_of_the_install_guide_have_the_documented_result(cluster: Sandbox) -> None:
    assert "successfully rolled out" in type_kubectl(cluster, "Install")[-1]
    listed, *_ = type_kubectl(cluster, "See what it would do")
    assert re.search(r"^default +DryRun", listed, re.MULTILINE)
    for section, expected in {
        "Allow evictions": ("mode", "Enforce"),
        "Enable prevention": ("prevention", {"podDeletionCost": "Enabled", "costsOfOthers": "Keep"}),
    }.items():
        type_kubectl(cluster, section)
        name, value = expected
        assert cluster.api.get(POLICY)["spec"][name] == value
    type_kubectl(cluster, "Watch it")
    type_kubectl(cluster, "Restrict the network")
    for kind in ("servicemonitor", "prometheusrule", "networkpolicy"):
        assert cluster.kubectl("get", kind, "respread", "-n", OPERATOR, "-o", "name").strip()

    type_kubectl(cluster, "Upgrade and remove")
    left = cluster.kubectl("get", "crd", "-o", "name").split()
    assert len([each for each in left if each.endswith(".respread.dev")]) == len(
        yaml.safe_load((ROOT / "crds" / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    )
    assert not cluster.api.exists(f"/apis/apps/v1/namespaces/{OPERATOR}/deployments/respread")


def test_the_commands_of_the_readme_and_the_page_show_the_cluster(cluster: Sandbox, tmp_path: Path) -> None:
    type_kubectl(cluster, "Install it", README)
    assert cluster.api.get(POLICY)["spec"]["mode"] == "DryRun"
    shown = [words for words in commands(README, "Look at your own cluster") if words[0] == "respread"]
    assert len(shown) == 5
    for _, *typed in shown:
        arguments = ["ui", "--help"] if typed == ["ui"] else typed  # it serves until it is stopped
        done = CliRunner().invoke(respread, arguments, env={"KUBECONFIG": str(cluster.kubeconfig)})
        assert done.exit_code == 0, done.output
    cluster.create_namespace("shop")
    create_deployment(cluster, "shop", deployment("web", replicas=1))
    wait_for_ready_pods(cluster, "shop", "web", 1)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs" / "ui.md").read_text(), re.MULTILINE | re.DOTALL)
    synopsis, report = (text for language, text in blocks if not language)
    options = {each for option in ui.params for each in (*option.opts, *option.secondary_opts)}
    assert set(re.findall(r"--[\w-]+", synopsis)) <= options
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "KUBECONFIG": str(cluster.kubeconfig)}
    subprocess.run(["bash", "-c", report], cwd=tmp_path, env=environment, check=True)
    assert "</html>" in (tmp_path / "web.html").read_text()
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    examples = re.findall(r"^`(kubectl apply .*)`$", page, re.MULTILINE)
    assert len(examples) >= 10
    for _, *arguments in map(str.split, examples):
        said = cluster.kubectl(*arguments[:-1], str(ROOT / arguments[-1]), "--dry-run=server")
        assert "serverside-applied" in said


def test_the_kustomizations_of_the_install_guide_render(cluster: Sandbox, tmp_path: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (IMAGE, PAGE))
    shown = re.findall(r"^```yaml\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    for number, text in enumerate(shown):
        folder = tmp_path / str(number)
        for name in ("crds", "manifests"):
            shutil.copytree(ROOT / name, folder / "respread" / name)
        folder.joinpath("kustomization.yaml").write_text(text, encoding="utf-8")
        rendered = cluster.kubectl("kustomize", str(folder))
        assert {"Deployment", "ClusterRebalancePolicy"} <= {each["kind"] for each in yaml.safe_load_all(rendered)}
