"""What the page on GitOps shows is valid for Argo CD and Flux, by their own definitions, and for the chart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from respread import __version__
from respread_sandbox import Sandbox
from tests.go_programs import PROGRAMS, source_of
from tests.integration.helm import CHART, Helm, helm_for

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "gitops.md"
DEFINITIONS: Final = {
    "argo-cd": "manifests/crds/application-crd.yaml",
    "flux-helm-controller": "config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml",
    "flux-kustomize-controller": "config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
    "flux-source-controller": "config/crd/bases/source.toolkit.fluxcd.io_ocirepositories.yaml",
}
REPOSITORIES: Final = "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"
OBJECTS: Final[list[dict[str, Any]]] = [
    each
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for each in yaml.safe_load_all(block)
]

pytestmark = pytest.mark.timeout(1800)
"""Helm is built first if it is not in the cache, and the definitions are downloaded if they are not in Go's."""


@pytest.fixture(scope="module")
def helm(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return helm_for(sandbox, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Sandbox:
    """A cluster that serves the kinds of Argo CD and Flux."""
    files = [source_of(PROGRAMS[name]) / file for name, file in DEFINITIONS.items()]
    files.append(source_of(PROGRAMS["flux-source-controller"]) / REPOSITORIES)
    names = []
    for file in files:
        sandbox.apply(file)
        names.append(yaml.safe_load(file.read_text(encoding="utf-8"))["metadata"]["name"])
    sandbox.wait_for_definitions(*names)
    for namespace in {each["metadata"]["namespace"] for each in OBJECTS}:
        sandbox.create_namespace(namespace)
    return sandbox


def test_the_api_server_knows_every_field_that_the_page_shows(cluster: Sandbox) -> None:
    for each in OBJECTS:
        apply = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
        assert "serverside-applied" in cluster.kubectl(*apply, stdin=yaml.safe_dump(each))
    assert {each["kind"] for each in OBJECTS} == {
        *("Application", "HelmRelease", "OCIRepository", "GitRepository", "Kustomization")
    }


def test_argo_cd_keeps_the_definitions_when_the_application_is_deleted(helm: Helm, tmp_path: Path) -> None:
    (application,) = (each for each in OBJECTS if each["kind"] == "Application")
    source = application["spec"]["source"]
    assert (source["chart"], source["targetRevision"]) == ("respread", __version__)
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(source["helm"]["valuesObject"]), encoding="utf-8")
    skipped = ["--skip-crds"] if source["helm"]["skipCrds"] else ["--include-crds"]
    rendered = list(yaml.safe_load_all(helm("template", "respread", str(CHART), "--values", str(values), *skipped)))
    definitions = [each for each in rendered if each["kind"] == "CustomResourceDefinition"]
    assert len(definitions) == len(list((CHART / "crds").iterdir()))
    for each in definitions:
        annotations = each["metadata"]["annotations"]
        assert annotations["helm.sh/resource-policy"] == "keep"  # Argo CD: as Delete=false
        assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false"


def test_the_releases_of_the_page_are_rendered_from_the_chart(helm: Helm, tmp_path: Path) -> None:
    releases = [each["spec"] for each in OBJECTS if each["kind"] == "HelmRelease"]
    assert len(releases) == 2
    for spec in releases:
        values = tmp_path / "values.yaml"
        values.write_text(yaml.safe_dump(spec.get("values", {})), encoding="utf-8")
        where = ("--namespace", spec["targetNamespace"], "--values", str(values))
        rendered = helm("template", spec["releaseName"], str(CHART), *where)
        policies = [each for each in yaml.safe_load_all(rendered) if each["kind"] == "ClusterRebalancePolicy"]
        assert [each["spec"]["mode"] for each in policies] == ["DryRun"]
    paths = [each["spec"]["path"] for each in OBJECTS if each["kind"] == "Kustomization"]
    assert paths
    assert all((ROOT / path.removeprefix("./respread/") / "kustomization.yaml").is_file() for path in paths)
