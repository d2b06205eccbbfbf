"""Karpenter is built from a copy of its module, which requires a newer Go than many users have.

A script replaces Go, as in test_binaries. `make test-karpenter` builds and runs the real one.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from respread_sandbox import BuildError, ToolchainError
from respread_sandbox.karpenter import MODULE, SUM, VERSION, Karpenter, cache_directory, instance_types, node_pool
from respread_sandbox.progress import BuildProgress

GO = """#!/bin/sh
echo "$*" >> "$GO_CALLS"
case "$1" in
env) echo go1.26.3 ;;
mod) cat "$GO_SAYS"; exit 1 ;;
build) grep '^go ' go.mod > "$GO_CALLS.go"; shift; while [ "$1" != -o ]; do shift; done
  printf "#!/bin/sh\\n" > "$2/kwok"; chmod +x "$2/kwok" ;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user's environment, with a go command that downloads the module and reports that it is too old for it."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in ("sh", "cat", "grep", "chmod"):
        (bin_folder / tool).symlink_to(shutil.which(tool) or tool)
    (bin_folder / "go").write_text(GO)
    (bin_folder / "go").chmod(0o755)
    archive = tmp_path / "karpenter.zip"
    with zipfile.ZipFile(archive, "w") as module:
        module.writestr(f"{MODULE}@{VERSION}/go.mod", f"module {MODULE}\n\ngo 1.99.9\n")
        module.writestr(f"{MODULE}@{VERSION}/go.sum", "")
        for folder in ("pkg/apis/crds", "kwok/apis/crds"):
            module.writestr(f"{MODULE}@{VERSION}/{folder}/one.yaml", "metadata: {name: one}\n")
    says = tmp_path / "says.json"
    says.write_text(json.dumps({"Error": "requires go >= 1.99.9", "Zip": str(archive), "Sum": SUM}))
    return {"HOME": str(tmp_path), "PATH": str(bin_folder), "GO_CALLS": str(tmp_path / "calls"), "GO_SAYS": str(says)}


def find_or_build(environment: dict[str, str]) -> Karpenter:
    return Karpenter.find_or_build(environment, BuildProgress(Console(file=io.StringIO())))


def test_karpenter_is_built_once_with_the_installed_go(environment: dict[str, str], tmp_path: Path) -> None:
    karpenter = find_or_build(environment)
    assert karpenter.program == cache_directory(environment) / "karpenter"
    assert (tmp_path / "calls.go").read_text() == "go 1.26.0\n"
    assert [file.name for file in karpenter.definition_files()] == ["one.yaml", "one.yaml"]
    (tmp_path / "bin" / "go").unlink()  # the second call needs no Go
    assert find_or_build(environment) == karpenter


def test_a_module_with_another_checksum_is_not_built(environment: dict[str, str], tmp_path: Path) -> None:
    says = json.loads((tmp_path / "says.json").read_text())
    (tmp_path / "says.json").write_text(json.dumps(says | {"Sum": "h1:other="}))
    with pytest.raises(BuildError, match=r"has the checksum h1:other= and not h1:.*: it was changed"):
        find_or_build(environment)
    assert not (cache_directory(environment) / "source").exists()


def test_the_error_of_a_failed_download_shows_the_output_of_go(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "says.json").write_text("no route to the proxy")
    with pytest.raises(
        BuildError, match=r"mod download .* failed:\nno route to the proxy\nIt needs the Go module proxy"
    ):
        find_or_build(environment)


def test_without_go_the_error_says_what_to_install(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").unlink()
    with pytest.raises(ToolchainError, match=r"Go was not found\. .*Go 1\.26 or newer"):
        find_or_build(environment)


def test_every_instance_type_is_offered_in_every_zone_with_a_price_by_cpus() -> None:
    types = instance_types(["zone-a", "zone-b"])
    for each in types:
        cpus = int(each["resources"]["cpu"])
        zones = [requirement["values"] for offer in each["offerings"] for requirement in offer["Requirements"][1:]]
        assert zones == [["zone-a"], ["zone-b"]]
        assert {offer["Price"] for offer in each["offerings"]} == {cpus * 0.02}


def test_the_nodes_of_the_pool_are_simulated() -> None:
    _, pool = yaml.safe_load_all(node_pool())
    assert pool["spec"]["template"]["metadata"]["labels"] == {"sandbox.respread.dev/kubelet": "simulated"}
