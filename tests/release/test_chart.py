"""The chart is packaged reproducibly, pushed to a registry, signed, verified, and installed from there."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from respread import __version__
from respread_sandbox import Sandbox
from tests.integration.helm import CHART, helm_for
from tests.registry import Registry, registry
from tests.release.made import ROOT, made

POLICY: Final = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"

pytestmark = pytest.mark.timeout(1800)
"""Helm, crane and cosign are built first if they are not in the cache."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def chart(local: Registry) -> str:
    """The name of the chart in the registry, by its digest, after it was pushed and signed."""
    digest = local.folder / "chart.digest"
    local.makes("push-chart", REGISTRY=f"oci://{local.address}/charts", DIGEST=digest, PLAIN_HTTP=1)
    name = f"{local.address}/charts/respread@{digest.read_text().strip()}"
    local.makes("sign-image", IMAGE=name, KEY=local.secret_key)
    return name


def test_the_same_commit_makes_the_same_package(local: Registry, tmp_path: Path) -> None:
    """Helm keeps the times of files, and another checkout has others."""
    copy = tmp_path / "respread"
    shutil.copytree(CHART, copy)
    for number, path in enumerate(sorted(copy.rglob("*"))):
        os.utime(path, (10**9 + number, 10**9 + number))
        path.chmod(path.stat().st_mode & 0o700)
    local.makes("chart", CHART=copy, CHART_TO=tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    same = package.read_bytes() == made("respread-VERSION.tgz").read_bytes()
    assert same, "the package in dist/ has other bytes; if it is of another commit, run `make dist` again"


def test_the_signature_of_a_pushed_chart_is_verified(local: Registry, chart: str) -> None:
    by_tag = f"{local.address}/charts/respread:{__version__}"
    for name in (chart, by_tag):
        local.makes("check-signed", IMAGE=name, KEY=local.public_key)


def test_a_tag_that_was_moved_to_another_chart_is_not_verified(local: Registry, chart: str, tmp_path: Path) -> None:
    copy = tmp_path / "respread"
    shutil.copytree(CHART, copy)
    values = copy / "values.yaml"
    values.write_text(values.read_text(encoding="utf-8") + "# of somebody else\n", encoding="utf-8")
    local.makes("chart", CHART=copy, CHART_TO=tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    moved = tmp_path / "moved.digest"
    where = {"REGISTRY": f"oci://{local.address}/moved", "PLAIN_HTTP": 1}
    tag = f"{local.address}/moved/respread:{__version__}"
    local.makes("push-chart", **where, DIGEST=moved)
    local.makes("sign-image", IMAGE=f"{tag.rpartition(':')[0]}@{moved.read_text().strip()}", KEY=local.secret_key)
    local.makes("check-signed", IMAGE=tag, KEY=local.public_key)
    local.makes("push-chart", **where, DIGEST=moved, PACKAGE=package)
    refused = local.make("check-signed", IMAGE=tag, KEY=local.public_key)
    assert refused.returncode != 0
    assert "no signatures found" in refused.stderr
    local.makes("check-signed", IMAGE=chart, KEY=local.public_key)


def test_the_chart_is_pulled_and_installed_from_the_registry(
    local: Registry, chart: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    helm = helm_for(sandbox, tmp_path)
    helm("pull", f"oci://{chart}", "--plain-http", "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")
    assert package.read_bytes() == made("respread-VERSION.tgz").read_bytes()
    where = ("respread", f"oci://{local.address}/charts/respread", "--version", __version__, "--plain-http")
    helm("install", *where, "--namespace", "respread-system", "--create-namespace")
    assert sandbox.api.get(POLICY)["spec"]["mode"] == "DryRun"
    sandbox.kubectl("rollout", "status", "deployment/respread", "-n", "respread-system", "--timeout=120s")


def test_the_commands_of_the_page_about_releases_push_sign_and_verify_the_chart(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        block = block.replace("127.0.0.1:5000", f"127.0.0.1:{free.getsockname()[1]}")
    block = block.replace("build/", f"{tmp_path}/")
    script = f"set -e\ntrap 'kill $!' EXIT\n{block}"  # the registry ends with its shell
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
