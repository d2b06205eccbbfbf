"""A scheduler's configuration file: the used values, and the errors that a scheduler would report."""

from __future__ import annotations

import pytest

from respread.cluster.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySpreadConstraint
from respread.scheduling.configuration import ConfigurationError, Profile, SchedulerConfiguration, read_configuration
from respread.scheduling.verdict import PLUGINS

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_without_profiles_the_defaults_apply() -> None:
    assert read_configuration(HEAD) == SchedulerConfiguration()
    assert SchedulerConfiguration().profiles["default-scheduler"] == Profile()
    assert [(each.topology_key, each.max_skew) for each in Profile().default_constraints] == [
        ("kubernetes.io/hostname", 3),
        ("topology.kubernetes.io/zone", 5),
    ]


def test_profiles_are_distinguished_by_scheduler_name() -> None:
    configuration = read_configuration(
        HEAD
        + """
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
leaderElection: {leaderElect: true}
profiles:
- schedulerName: default-scheduler
- schedulerName: packed
  pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, minDomains: 3, nodeTaintsPolicy: Honor}
      - {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: pool, operator: In, values: [a, b]}]
  - name: NodeResourcesFit
    args: {ignoredResources: [example.com/a], ignoredResourceGroups: [other.io], scoringStrategy: {type: MostAllocated}}
"""
    )
    assert set(configuration.profiles) == {"default-scheduler", "packed"}
    assert configuration.profiles["default-scheduler"] == Profile()
    packed = configuration.profiles["packed"]
    assert not packed.system_defaults
    assert packed.default_constraints == (
        TopologySpreadConstraint(2, "rack", "DoNotSchedule", min_domains=3, node_taints_policy="Honor"),
        TopologySpreadConstraint(1, "rack", "ScheduleAnyway"),
    )
    assert packed.added_affinity == NodeSelector(
        (NodeSelectorTerm((NodeSelectorRequirement("pool", "In", ("a", "b")),)),)
    )
    assert [
        name for name in ("example.com/a", "example.com/b", "other.io/x", "cpu") if packed.ignores_resource(name)
    ] == ["example.com/a", "other.io/x"]


@pytest.mark.parametrize(
    ("plugins", "off", "unknown"),
    [
        ("{}", set(), ()),
        ("{filter: {disabled: [{name: NodePorts}]}}", {"NodePorts"}, ()),
        ("{multiPoint: {disabled: [{name: NodePorts}], enabled: [{name: ImageLocality}]}}", {"NodePorts"}, ()),
        ('{multiPoint: {disabled: [{name: "*"}], enabled: [{name: NodeName}]}}', set(PLUGINS) - {"NodeName"}, ()),
        ('{filter: {disabled: [{name: "*"}], enabled: [{name: NodeName}]}}', set(PLUGINS) - {"NodeName"}, ()),
        ("{multiPoint: {enabled: [{name: Coscheduling}]}}", set(), ("plugin Coscheduling",)),
        ("{filter: {enabled: [{name: Custom}]}}", set(), ("plugin Custom",)),
        ("{preFilter: {enabled: [{name: Custom}]}}", set(), ("plugin Custom",)),
        ("{preFilter: {disabled: [{name: NodePorts}]}}", set(), ("preFilter without NodePorts",)),
        ("{score: {enabled: [{name: Custom}]}}", set(), ()),
    ],
)
def test_plugins_can_be_disabled_and_unknown_ones_are_named(
    plugins: str, off: set[str], unknown: tuple[str, ...]
) -> None:
    profile = read_configuration(f"{HEAD}profiles: [{{plugins: {plugins}}}]").profiles["default-scheduler"]
    assert profile.plugins == set(PLUGINS) - off
    assert profile.unknown == unknown


def test_a_filtering_extender_makes_every_profile_unpredictable() -> None:
    extenders = "[{urlPrefix: 'http://a', filterVerb: filter}, {urlPrefix: 'http://b', prioritizeVerb: rank}]"
    configuration = read_configuration(f"{HEAD}extenders: {extenders}")
    assert configuration.profiles["default-scheduler"].unknown == ("extender http://a",)


def with_spread_args(args: str) -> str:
    return f"{HEAD}profiles: [{{pluginConfig: [{{name: PodTopologySpread, args: {args}}}]}}]"


AT = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the scheduler's configuration is not YAML"),
        ("[]", "the document: Expected `object`, got `array`"),
        ("kind: Policy", "kind and apiVersion must be KubeSchedulerConfiguration and kubescheduler.config.k8s.io/v1"),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration",
            "not 'KubeSchedulerConfiguration' and 'kubescheduler.config.k8s.io/v1beta1'",
        ),
        (f"{HEAD}profiles: [{{}}, {{}}]", "profiles[1].schedulerName: 'default-scheduler' is there twice"),
        (f"{HEAD}profiles: [{{schedulerName: 7}}]", "profiles[0].schedulerName: Expected `str`, got `int`"),
        (
            f"{HEAD}profiles: [{{pluginConfig: [{{name: NodeAffinity}}, {{name: NodeAffinity}}]}}]",
            "profiles[0].pluginConfig[1].name: 'NodeAffinity' is configured twice",
        ),
        (with_spread_args("{defaultingType: Cluster}"), f"{AT}.defaultingType: Invalid enum value 'Cluster'"),
        (
            with_spread_args(
                "{defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}"
            ),
            f"{AT}.defaultConstraints: there may be none unless defaultingType is List",
        ),
        (
            with_spread_args(
                "{defaultingType: List, "
                "defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}"
            ),
            f"{AT}.defaultConstraints[0].maxSkew: must be more than 0, not 0",
        ),
        (
            with_spread_args(
                "{defaultingType: List, "
                "defaultConstraints: [{maxSkew: 1, topologyKey: '', whenUnsatisfiable: DoNotSchedule}]}"
            ),
            f"{AT}.defaultConstraints[0].topologyKey: '' is not a label key: it is empty",
        ),
        (
            with_spread_args(
                "{defaultingType: List, "
                "defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Sometimes}]}"
            ),
            f"{AT}.defaultConstraints[0].whenUnsatisfiable: Invalid enum value 'Sometimes'",
        ),
        (
            with_spread_args(
                "{defaultingType: List, defaultConstraints: "
                "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]}"
            ),
            f"{AT}.defaultConstraints[0].labelSelector: there must be none, selectors come from Services and owners",
        ),
        (
            with_spread_args(
                "{defaultingType: List, defaultConstraints: "
                "[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, "
                "{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}"
            ),
            f"{AT}.defaultConstraints[1]: topologyKey and whenUnsatisfiable are the same as of another constraint",
        ),
    ],
)
def test_an_invalid_configuration_is_rejected_with_its_field(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_configuration(text)
    assert message in str(refused.value)
