"""Predictions follow the known bugs of scheduler versions."""

from __future__ import annotations

import pytest
from immutables import Map
from msgspec.structs import replace

from respread.api.fields import LabelSelector, LabelSelectorRequirement, SelectorOperator
from respread.cluster.objects import Namespace
from respread.cluster.pod import PodAffinityTerm
from respread.scheduling.configuration import SchedulerConfiguration, keeps_namespace_selectors, of_version
from respread.scheduling.predictor import Predictor
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.cluster_view import ClusterView
from tests.worlds import HOSTNAME, cluster, node, pod, spec


@pytest.mark.parametrize(
    ("version", "has_it"),
    [
        ("v1.33.9", False),
        ("v1.34.0", True),
        ("v1.35.7-eks-123", True),
        ("v1.36.3", True),
        ("v1.36.3+k3s1", True),
        ("v1.36.4", None),
        ("v1.37.0", None),
        ("v2.0.0", None),
        ("", None),
        ("devel", None),
    ],
)
def test_the_namespace_selector_bug_applies_to_its_versions(version: str, has_it: bool | None) -> None:
    assert keeps_namespace_selectors(version) is has_it
    assert of_version(SchedulerConfiguration(), version).keeps_namespace_selectors is has_it
    assert (
        of_version(SchedulerConfiguration(keeps_namespace_selectors=True), version).keeps_namespace_selectors is has_it
    )


def answer(version: str, operator: SelectorOperator | None = "NotIn") -> PreparedPod:
    """Prepare a pod with anti-affinity to some namespaces, without an operator that of a team; one has a pod there."""
    term = PodAffinityTerm(HOSTNAME, LabelSelector(match_labels=Map(app="web")), ("team",))
    if operator is not None:
        values = ("a",) if operator in {"In", "NotIn"} else ()
        elsewhere = LabelSelector(match_expressions=(LabelSelectorRequirement("team", operator, values),))
        term = replace(term, namespaces=(), namespace_selector=elsewhere)
    team = Namespace(name="team", labels=Map(team="a"))
    there = pod("there", "n1", spec(), namespace="team")
    snapshot = cluster([node("n1")], [there], namespaces=[team, Namespace(name="default")])
    incoming = pod("new", "", spec(pod_anti_affinity=(term,)))
    return Predictor(ClusterView(snapshot), of_version(SchedulerConfiguration(), version)).prepare(incoming)


@pytest.mark.parametrize(("version", "fits"), [("v1.36.3", False), ("v1.33.0", True)])
def test_with_the_bug_anti_affinity_applies_to_excluded_namespaces(version: str, fits: bool) -> None:
    """kubernetes#141526: anti-affinity to all namespaces except those of a team applies to the team's pods too."""
    assert bool(answer(version).feasible_nodes()) is fits


@pytest.mark.parametrize("version", ["", "v1.37.1"])
def test_nothing_is_predicted_for_affected_pods_if_the_version_is_unclear(version: str) -> None:
    unknown = answer(version).unknown
    assert unknown is not None
    assert "kubernetes#141526" in unknown.message
    assert not answer(version).feasible_nodes()


@pytest.mark.parametrize("operator", ["In", "Exists", None])
def test_other_selectors_have_the_same_meaning_in_every_version(operator: SelectorOperator | None) -> None:
    assert [answer(version, operator=operator).feasible_nodes() for version in ("", "v1.33.0", "v1.36.3")] == [[]] * 3
    assert answer("", operator=operator).unknown is None
