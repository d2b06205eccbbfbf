"""The API server accepts every policy that `respread migrate` writes, and prunes no field of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from respread.api.policy import PLURALS
from respread_sandbox import Sandbox
from tests.descheduler_policies import FILES

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture(scope="module")
def cluster(api_sandbox: Sandbox) -> Sandbox:
    """An API server with both kinds of policies, and the namespaces that the examples name."""
    api_sandbox.apply(CRDS)
    api_sandbox.wait_for_definitions(*(f"{plural}.respread.dev" for plural in PLURALS.values()))
    api_sandbox.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
    return api_sandbox


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_api_server_accepts_migrated_policies(cluster: Sandbox, file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "respread_cli.main", "migrate", str(file)], check=True, capture_output=True, text=True
    )
    policies = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    if not policies:
        assert done.stderr.startswith("No policy comes of it")
        return
    options = ("--server-side", "--dry-run=server", "--validate=strict", "-o", "yaml")
    stored = yaml.safe_load(cluster.kubectl("apply", *options, "-f", "-", stdin=done.stdout))
    items = stored["items"] if stored["kind"] == "List" else [stored]
    assert [each["metadata"]["name"] for each in items] == [each["metadata"]["name"] for each in policies]
    for written, admitted in zip(policies, items, strict=True):
        for name, value in written["spec"].items():
            given = admitted["spec"][name]
            assert given == value or (isinstance(value, dict) and value.items() <= given.items()), name
