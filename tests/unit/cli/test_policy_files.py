"""Policies in files, without an API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from respread.api.policy import Policy
from respread.program.command_line import CommandError
from respread_cli.report.planned import DEFAULT_POLICY, read_policies

CLUSTER_POLICY = """
apiVersion: respread.dev/v1alpha1
kind: ClusterRebalancePolicy
metadata: {name: all}
spec: {mode: Enforce}
"""
POLICY = """
apiVersion: respread.dev/v1alpha1
kind: RebalancePolicy
metadata: {name: own}
spec: {quietPeriod: 1m}
"""


def read(directory: Path, *texts: str) -> tuple[Policy, ...]:
    files = [directory / f"{number}.yaml" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    return read_policies([str(file) for file in files], default_namespace="shop")


def error_of(directory: Path, *texts: str) -> str:
    with pytest.raises(CommandError) as caught:
        read(directory, *texts)
    return caught.value.message.replace(f"{directory}/", "")


def test_several_documents_in_several_files_are_read(tmp_path: Path) -> None:
    other = POLICY.replace("own", "other")
    assert [each.name for each in read(tmp_path, f"---{CLUSTER_POLICY}---{POLICY}---\n", other)] == [
        "all",
        "shop/own",
        "shop/other",
    ]


def test_lists_from_kubectl_get_are_read(tmp_path: Path) -> None:
    items = "\n".join(f"- {line}" if line.startswith("api") else f"  {line}" for line in POLICY.strip().splitlines())
    assert [each.name for each in read(tmp_path, f"apiVersion: v1\nkind: List\nitems:\n{items}\n")] == ["shop/own"]
    raw = (
        '{"apiVersion": "respread.dev/v1alpha1", "kind": "RebalancePolicyList", "items": [{"metadata": {"name": "a"}}]}'
    )
    assert [each.name for each in read(tmp_path, raw)] == ["shop/a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0.yaml holds no policy."),
        ("a: [", "0.yaml is not YAML: "),
        ("7", "0.yaml: a policy must be an object"),
        ("kind: Deployment\napiVersion: apps/v1", "0.yaml: apiVersion: a policy's is respread.dev/v1alpha1"),
        (
            CLUSTER_POLICY.replace("{name: all}", "{}"),
            "0.yaml: metadata.name: every ClusterRebalancePolicy needs a name",
        ),
        (
            CLUSTER_POLICY.replace("Enforce", "Enforced"),
            "0.yaml (ClusterRebalancePolicy all): spec.mode: ",
        ),
        (f"{POLICY}---{POLICY}", "0.yaml, document 2: there is a RebalancePolicy shop/own already"),
    ],
    ids=range(7),
)
def test_mistakes_are_reported_with_file_document_and_field(tmp_path: Path, text: str, message: str) -> None:
    assert error_of(tmp_path, text).startswith(message)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    wrong = CLUSTER_POLICY.replace("{mode: Enforce}", "{mode: Maybe, quietPeriod: soon}")
    message = error_of(tmp_path, f"{wrong}---\nkind: Pod\n---{POLICY}")
    assert message.startswith("3 mistakes:\n  0.yaml, document 1 (ClusterRebalancePolicy all): spec.mode: ")
    assert "\n  0.yaml, document 1 (ClusterRebalancePolicy all): spec.quietPeriod: " in message
    assert "\n  0.yaml, document 2: apiVersion: " in message


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"missing.yaml can't be read: No such file or directory"):
        read_policies([str(tmp_path / "missing.yaml")], default_namespace="default")


def test_a_binary_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match=r"policy.yaml is not text in UTF-8"):
        read_policies([str(tmp_path / "policy.yaml")], default_namespace="default")


def test_the_default_policy_has_an_empty_spec(tmp_path: Path) -> None:
    text = CLUSTER_POLICY.replace("{mode: Enforce}", "{}")
    assert read(tmp_path, text)[0].spec == DEFAULT_POLICY.spec
