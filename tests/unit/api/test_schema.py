"""The CRDs match the types, and are complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from respread.api import schema
from respread.api.fields import LabelSelector
from respread.api.policy import (
    GROUP,
    PLURALS,
    ClusterPolicySpec,
    PolicyKind,
    PolicySpec,
    PriorityThreshold,
    VictimRules,
)
from respread.api.structures import write_value
from tests.policy_specs import BAD_SPECS, CLUSTER, GOOD_SPECS, NAMESPACED

CRDS = Path(__file__).parents[3] / "crds"
GOLDEN = Path(__file__).parents[2] / "golden" / "crds"

both_kinds = pytest.mark.parametrize("kind", PLURALS)


def root(kind: PolicyKind) -> dict[str, Any]:
    (version,) = schema.custom_resource_definition(kind)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema in a schema, with the path of its field; `[]` is an item of a list."""
    yield path, node
    for name, each in node.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}".removeprefix("."))
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")


@both_kinds
def test_the_crd_file_of_a_kind_contains_its_definition(kind: PolicyKind) -> None:
    definition = schema.custom_resource_definition(kind)
    assert yaml.safe_load(schema.manifests()[f"{definition['metadata']['name']}.yaml"]) == definition


def test_the_crd_files_are_up_to_date() -> None:
    for name, text in schema.manifests().items():
        assert (CRDS / name).read_text(encoding="utf-8") == text, "the types have changed: run `make crds`"


def test_the_crd_folder_contains_no_other_file() -> None:
    found = {
        each.name for each in CRDS.glob("*.yaml") if "CustomResourceDefinition" in each.read_text(encoding="utf-8")
    }
    assert found == set(schema.manifests())


@both_kinds
def test_the_api_server_fills_in_no_field_that_an_operator_of_the_golden_version_does_not_know(
    kind: PolicyKind,
) -> None:
    """tests/golden/crds/README.md says what to do instead."""
    name = f"{PLURALS[kind]}.{GROUP}.yaml"
    (golden,) = yaml.safe_load((GOLDEN / name).read_text(encoding="utf-8"))["spec"]["versions"]
    known = {path for path, _ in nodes(golden["schema"]["openAPIV3Schema"])}
    assert {path for path, node in nodes(root(kind)) if "default" in node} <= known


@both_kinds
def test_every_field_has_a_description(kind: PolicyKind) -> None:
    missing = [
        path
        for path, node in nodes(root(kind))
        if path and not path.endswith("[]") and path != "metadata" and not node.get("description")
    ]
    assert missing == []


@both_kinds
def test_descriptions_are_sentences(kind: PolicyKind) -> None:
    wrong = {path: text for path, node in nodes(root(kind)) if (text := node.get("description")) and text[-1] != "."}
    assert wrong == {}


@both_kinds
def test_unknown_fields_are_pruned_and_every_list_and_string_is_bounded(kind: PolicyKind) -> None:
    for path, node in nodes(root(kind)):
        assert "x-kubernetes-preserve-unknown-fields" not in node, path
        if path in {"", "apiVersion", "kind", "metadata"}:
            continue
        match node.get("type"):
            case "array":
                assert "maxItems" in node, path
                assert "x-kubernetes-list-type" in node, path
            case "string":
                assert "maxLength" in node or "enum" in node or node.get("format") == "date-time", path
            case "object":
                assert "properties" in node or "maxProperties" in node, path
            case "integer":
                assert "minimum" in node, path


@both_kinds
def test_every_rule_has_a_message(kind: PolicyKind) -> None:
    rules = [rule for _, node in nodes(root(kind)) for rule in node.get("x-kubernetes-validations", ())]
    assert rules
    assert all(rule["message"] for rule in rules)


def test_only_cluster_policies_select_namespaces() -> None:
    own, cluster = (root(kind)["properties"]["spec"]["properties"] for kind in (NAMESPACED, CLUSTER))
    assert set(cluster) - set(own) == {"namespaceSelector"}
    assert {name: each for name, each in cluster.items() if name != "namespaceSelector"} == own


@both_kinds
def test_the_status_is_a_subresource_whose_only_default_is_an_observed_generation_of_0(kind: PolicyKind) -> None:
    (version,) = schema.custom_resource_definition(kind)["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    filled_in = {path: node["default"] for path, node in nodes(root(kind)["properties"]["status"]) if "default" in node}
    assert filled_in == {"": {"observedGeneration": 0}}


@both_kinds
def test_the_printer_columns_and_short_names_are_as_documented(kind: PolicyKind) -> None:
    definition = schema.custom_resource_definition(kind)["spec"]
    (version,) = definition["versions"]
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns == [
        *("Mode", "Ready", "Reason", "Balanced"),
        *("Groups", "Violated", "Worst-Skew", "Planned", "Evicted", "Remaining", "Age"),
        *("Bound-By", "Unsatisfiable", "Ineffective"),
    ]
    wide = [column["name"] for column in version["additionalPrinterColumns"] if "priority" in column]
    assert wide == ["Bound-By", "Unsatisfiable", "Ineffective"]
    fields = {f".{path}" for path, _ in nodes(root(kind))} | {".metadata.creationTimestamp"}
    plain = [re.sub(r"\[\?.*\]", "[]", column["jsonPath"]) for column in version["additionalPrinterColumns"]]
    assert set(plain) <= fields
    assert {each["jsonPath"] for each in version["selectableFields"]} <= fields
    assert definition["names"]["shortNames"] == [{"RebalancePolicy": "rbp", "ClusterRebalancePolicy": "crbp"}[kind]]
    assert definition["scope"] == {"RebalancePolicy": "Namespaced", "ClusterRebalancePolicy": "Cluster"}[kind]


NO_THRESHOLD = VictimRules(priority_threshold=PriorityThreshold())


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (NAMESPACED, PolicySpec(victims=NO_THRESHOLD)),
        (CLUSTER, ClusterPolicySpec(victims=NO_THRESHOLD, namespace_selector=LabelSelector())),
    ],
)
def test_schema_defaults_match_the_types_except_where_a_later_value_would_be_merged_into_them(
    kind: PolicyKind, spec: PolicySpec
) -> None:
    def filled_in(node: dict[str, Any], given: Any) -> Any:
        """Return a value with the API server's defaults."""
        if not isinstance(given, dict):
            return given
        fields = dict(given)
        for name, each in node.get("properties", {}).items():
            if name not in fields and "default" in each:
                fields[name] = each["default"]
            if name in fields:
                fields[name] = filled_in(each, fields[name])
        return fields

    def pruned(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: pruned(each) for name, each in value.items() if pruned(each) not in ({}, [])}

    assert pruned(filled_in(root(kind)["properties"]["spec"], {})) == pruned(write_value(spec))


def test_every_field_of_the_spec_has_a_valid_and_an_invalid_example() -> None:
    leaves = {path for path, node in nodes(root(CLUSTER)["properties"]["spec"], "spec") if "properties" not in node}
    every = {path.replace("namespaceSelector.", "podSelector.") for path in leaves}  # both have the same type
    bad = {field for each in BAD_SPECS for field in _plain(each.field)}
    good = {field for _, spec in GOOD_SPECS.values() for field in _paths(spec, "spec")}
    assert every - bad == set()
    assert every - good == set()


def test_the_command_writes_changed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("wrote ") == 4
    assert schema.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    assert {each.name for each in tmp_path.iterdir()} == set(schema.manifests())


@pytest.mark.parametrize("arguments", [[], ["no/such/folder"], ["a", "b"]])
def test_the_command_without_a_folder_prints_its_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert schema.main(arguments) == 2
    assert "folder" in capsys.readouterr().err.lower()


def _plain(field: str) -> Iterator[str]:
    """Yield a path without the indices of list items and the keys of maps, and the paths of the lists."""
    plain = "".join("[]" if part.isdigit() else part for part in field.replace("[", "]").split("]"))
    plain = plain.partition(".matchLabels.")[0] + (".matchLabels" if ".matchLabels." in plain else "")
    yield plain
    while plain.endswith("[]"):
        plain = plain.removesuffix("[]")
        yield plain


def _paths(value: Any, at: str) -> Iterator[str]:
    yield at
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _paths(each, f"{at}.{name}")
    if isinstance(value, list):
        for each in value:
            yield from _paths(each, f"{at}[]")
