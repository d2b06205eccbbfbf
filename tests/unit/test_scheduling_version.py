"""Which versions of the scheduler have which quirks."""

from __future__ import annotations

import pytest
from immutables import Map

from respread.api.label_selector import LabelSelector, LabelSelectorRequirement
from respread.cluster.objects import Namespace
from respread.cluster.pod import PodAffinityTerm
from respread.scheduling.cluster_view import ClusterView
from respread.scheduling.configuration import SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.scheduling.version import keeps_namespace_selectors, of_version
from tests.unit.worlds import HOSTNAME, cluster, node, pod, spec


@pytest.mark.parametrize(
    ("version", "has_it"),
    [
        ("v1.33.9", False),
        ("v1.34.0", True),
        ("v1.35.7-eks-123", True),
        ("v1.36.3", True),
        ("v1.36.3+k3s1", True),
        ("v1.36.4", False),
        ("v1.37.0", False),
        ("v2.0.0", False),
        ("", False),
        ("devel", False),
    ],
)
def test_namespace_selectors_are_kept_in_the_versions_that_have_the_bug(version: str, has_it: bool) -> None:
    assert keeps_namespace_selectors(version) is has_it
    assert of_version(SchedulerConfiguration(), version).keeps_namespace_selectors is has_it
    assert (
        of_version(SchedulerConfiguration(keeps_namespace_selectors=True), version).keeps_namespace_selectors is has_it
    )


@pytest.mark.parametrize(("version", "fits"), [("v1.36.3", False), ("v1.33.0", True)])
def test_a_pod_is_kept_away_from_the_namespaces_that_its_selector_excludes(version: str, fits: bool) -> None:
    """As in kubernetes#141526: anti-affinity to all namespaces but those of a team meets the team's pods as well."""
    elsewhere = LabelSelector(match_expressions=(LabelSelectorRequirement("team", "NotIn", ("a",)),))
    term = PodAffinityTerm(HOSTNAME, LabelSelector(match_labels=Map(app="web")), namespace_selector=elsewhere)
    team = Namespace(name="team", labels=Map(team="a"))
    there = pod("there", "n1", spec(), namespace="team")
    snapshot = cluster([node("n1")], [there], namespaces=[team, Namespace(name="default")])
    incoming = pod("new", "", spec(pod_anti_affinity=(term,)))

    predictor = Predictor(ClusterView(snapshot), of_version(SchedulerConfiguration(), version))

    assert predictor.prepare(incoming).fits("n1") is fits
