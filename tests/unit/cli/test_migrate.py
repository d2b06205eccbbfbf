"""Descheduler settings become policies: every line becomes a field or a comment, or is rejected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from respread.api.decoding import decode_manifest
from respread.api.policy import Policy
from respread_cli.commands.migrate import migrate
from respread_cli.migrate.descheduler import SPREAD, DefaultEvictorArgs, DeschedulerPolicy, SpreadArgs
from respread_cli.migrate.profiles import SpreadParams, V1alpha1Policy
from tests.descheduler_policies import EXAMPLES, FILES, lines, named

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENTATION = (DOCS / "coming-from-descheduler.md").read_text(encoding="utf-8")
SETTINGS = (DOCS / "descheduler-settings.md").read_text(encoding="utf-8")


def run(text: str, *files: Path) -> Result:
    return CliRunner().invoke(migrate, [str(file) for file in files], input=dedent(text))


def written(text: str) -> tuple[Policy, ...]:
    done = run(text)
    assert done.exit_code == 0, done.stderr
    policies = tuple(decode_manifest(each) for each in yaml.safe_load_all(done.stdout) if each is not None)
    assert not any(policy.problems for policy in policies)
    assert {policy.spec.mode for policy in policies} <= {"DryRun"}
    return policies


def only(text: str) -> Policy:
    (policy,) = written(text)
    return policy


def comments(text: str) -> str:
    """Return all comments as one line."""
    done = run(text)
    assert done.exit_code == 0, done.stderr
    commented = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("#")]
    return " ".join(line.removeprefix("#").strip() for line in commented)


def refusal(text: str) -> str:
    done = run(text)
    assert done.exit_code == 2
    assert done.stdout == ""
    return done.stderr


def policy_of(*, evictor: Any = None, spread: Any = None, name: str = "p", **fields: Any) -> str:
    """Return a policy of v1alpha2 that restores topology spread."""
    profile = {
        "name": name,
        "pluginConfig": [{"name": "DefaultEvictor", "args": evictor or {}}, {"name": SPREAD, "args": spread or {}}],
        "plugins": {"balance": {"enabled": [SPREAD]}},
    }
    document = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile], **fields}
    return yaml.safe_dump(document)


def old_policy_of(params: Any = None, **fields: Any) -> str:
    """Return a policy of v1alpha1 that restores topology spread."""
    strategies = {SPREAD: {"enabled": True, "params": params or {}}}
    document = {"apiVersion": "descheduler/v1alpha1", "kind": "DeschedulerPolicy", "strategies": strategies, **fields}
    return yaml.safe_dump(document)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_line_of_every_example_is_a_field_or_has_a_comment(name: str) -> None:
    text = EXAMPLES[name]
    output = run(text).stdout
    unwrapped = " ".join(line.strip().removeprefix("#").strip() for line in output.splitlines())
    missing = [path for path in lines(yaml.safe_load(text)) if not named(path, unwrapped)]
    assert not missing, output
    restores = "kind: ClusterRebalancePolicy" in output or "kind: RebalancePolicy" in output
    assert restores == (SPREAD in text or "charts/" in name or "chart" in name), output
    written(text)


def test_several_input_documents_become_one_output_file() -> None:
    done = run("", *FILES)
    assert done.exit_code == 0, done.stderr
    policies = [decode_manifest(each) for each in yaml.safe_load_all(done.stdout) if each is not None]
    names = [(each.kind, each.name) for each in policies]
    assert len(set(names)) == len(names) > 20
    assert f"{len(names)} policies in mode DryRun" in done.stderr


def test_defaults_of_the_descheduler_are_written_out() -> None:
    spec = only(policy_of()).spec
    assert decode_manifest(yaml.safe_load(run(policy_of()).stdout)).name == "descheduler-p"
    written_spec = yaml.safe_load(run(policy_of()).stdout)["spec"]
    assert written_spec == {"mode": "DryRun", "namespaceSelector": {}, "victims": {"minAge": "0s", "minReplicas": 1}}
    assert spec.constraints.when_unsatisfiable == ("DoNotSchedule",)


@pytest.mark.parametrize(
    ("evictor", "victims"),
    [
        ({"minReplicas": 3}, {"minReplicas": 3}),
        ({"minReplicas": 0}, {"minReplicas": 1}),
        ({"minReplicas": 5_000_000}, {"minReplicas": 1_000_000}),
        ({"minPodAge": "1h30m"}, {"minAge": "1h30m"}),
        ({"minPodAge": "1500us"}, {"minAge": "2ms"}),
        ({"minPodAge": "-5m"}, {"minAge": "0s"}),
        ({"minPodAge": "20000h"}, {"minAge": "8760h"}),
        ({"priorityThreshold": {"name": "important"}}, {"priorityThreshold": {"name": "important"}}),
        ({"priorityThreshold": {"value": 7}}, {"priorityThreshold": {"value": 7}}),
        ({"priorityThreshold": {}}, {"priorityThreshold": {"name": "system-cluster-critical"}}),
        ({"evictSystemCriticalPods": True}, {"priorityThreshold": {"value": 2**31 - 1}}),
        (
            {"evictSystemCriticalPods": True, "priorityThreshold": {"value": 7}},
            {"priorityThreshold": {"value": 2**31 - 1}},
        ),
        ({"podProtections": {"defaultDisabled": ["SystemCriticalPods"]}}, {"priorityThreshold": {"value": 2**31 - 1}}),
        ({"evictLocalStoragePods": True}, {"localStorage": "Evict"}),
        ({"evictLocalStoragePods": False}, {"localStorage": "Protect"}),
        ({"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}}, {"localStorage": "Evict"}),
        ({"ignorePvcPods": True}, {"persistentVolumeClaims": "Protect"}),
        ({"ignorePvcPods": False}, {"persistentVolumeClaims": "Evict"}),
        ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {"persistentVolumeClaims": "Protect"}),
        ({"ignorePodsWithoutPDB": True}, {"budget": "Required"}),
        ({"ignorePodsWithoutPDB": False}, {"budget": "Optional"}),
        ({"podProtections": {"extraEnabled": ["PodsWithoutPDB"]}}, {"budget": "Required"}),
    ],
    ids=str,
)
def test_arguments_of_the_evictor_become_victims_fields(evictor: Any, victims: Any) -> None:
    found = yaml.safe_load(run(policy_of(evictor=evictor)).stdout)["spec"]["victims"]
    assert {name: found[name] for name in victims} == victims
    only(policy_of(evictor=evictor))


@pytest.mark.parametrize(
    ("evictor", "said"),
    [
        ({"evictDaemonSetPods": True}, "never evicts pods of DaemonSets"),
        ({"evictFailedBarePods": True}, "never evicts pods without a controller"),
        ({"podProtections": {"extraEnabled": ["PodsWithResourceClaims"]}}, "never evicts pods with ResourceClaims"),
        ({"nodeFit": False}, "that can't be turned off"),
        ({"nodeSelector": "a=b"}, "every node that the kube-scheduler may place a replacement on"),
        ({"noEvictionPolicy": "Preferred"}, "Take it off pods that may be evicted"),
        ({"noEvictionPolicy": "Mandatory"}, "as with Mandatory."),
        ({"evictLocalStoragePod": True}, "there is no such field; did you mean evictLocalStoragePods?"),
    ],
    ids=str,
)
def test_settings_without_a_field_have_a_comment_with_the_reason(evictor: Any, said: str) -> None:
    assert said in comments(policy_of(evictor=evictor))


EVICTOR_SAMPLES: dict[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "nodeSelector": "a=b",
    "labelSelector": {"matchLabels": {"a": "b"}},
    "namespaceLabelSelector": {"matchLabels": {"a": "b"}},
    "priorityThreshold": {"value": 1},
    "nodeFit": True,
    "minReplicas": 3,
    "minPodAge": "1m",
    "noEvictionPolicy": "",
    "podProtections": {"extraEnabled": ["PodsWithPVC"]},
    "evictLocalStoragePods": False,
    "evictDaemonSetPods": False,
    "evictSystemCriticalPods": False,
    "evictFailedBarePods": False,
    "ignorePvcPods": False,
    "ignorePodsWithoutPDB": False,
}
SPREAD_SAMPLES: dict[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "namespaces": {"include": ["a"]},
    "labelSelector": {},
    "constraints": ["DoNotSchedule"],
    "includeSoftConstraints": False,
    "topologyBalanceNodeFit": True,
}


@pytest.mark.parametrize(
    ("kind", "part", "index", "samples"),
    [(DefaultEvictorArgs, "evictor", 0, EVICTOR_SAMPLES), (SpreadArgs, "spread", 1, SPREAD_SAMPLES)],
)
def test_every_argument_is_named_in_a_comment_whatever_its_value(
    kind: type[msgspec.Struct], part: str, index: int, samples: dict[str, Any]
) -> None:
    assert set(samples) == {field.encode_name for field in msgspec.structs.fields(kind)}
    for name, value in samples.items():
        if value is not None:
            path = f"profiles[0].pluginConfig[{index}].args.{name}"
            arguments: dict[str, Any] = {part: {name: value}}
            assert path in comments(policy_of(**arguments)), name


def test_protected_storage_classes_protect_all_persistent_volume_claims() -> None:
    classes = {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}}
    text = policy_of(evictor={"podProtections": {"extraEnabled": ["PodsWithPVC"], "config": classes}})
    assert only(text).spec.victims.persistent_volume_claims == "Protect"
    assert "not those of fast only" in comments(text)
    idle = policy_of(evictor={"podProtections": {"defaultDisabled": ["DaemonSetPods"], "config": classes}})
    assert only(idle).spec.victims.persistent_volume_claims == "Evict"
    assert "PodsWithPVC is not among extraEnabled" in comments(idle)


@pytest.mark.parametrize(
    ("spread", "kinds"),
    [
        ({}, ["DoNotSchedule"]),
        ({"constraints": []}, ["DoNotSchedule"]),
        ({"constraints": ["ScheduleAnyway"]}, ["ScheduleAnyway"]),
        ({"constraints": ["DoNotSchedule", "ScheduleAnyway", "DoNotSchedule"]}, ["DoNotSchedule", "ScheduleAnyway"]),
        ({"includeSoftConstraints": True}, ["DoNotSchedule", "ScheduleAnyway"]),
        ({"includeSoftConstraints": False}, ["DoNotSchedule"]),
    ],
    ids=str,
)
def test_constraint_kinds_become_when_unsatisfiable(spread: Any, kinds: list[str]) -> None:
    assert list(only(policy_of(spread=spread)).spec.constraints.when_unsatisfiable) == kinds


def test_both_label_selectors_must_hold() -> None:
    selector = {"matchLabels": {"a": "1", "b": "2"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    text = policy_of(evictor={"labelSelector": selector}, spread={"labelSelector": {"matchLabels": {"a": "9"}}})
    assert yaml.safe_load(run(text).stdout)["spec"]["podSelector"] == {
        "matchLabels": {"a": "1", "b": "2"},
        "matchExpressions": [{"key": "c", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["9"]}],
    }


def namespaces_of(text: str) -> Any:
    return yaml.safe_load(run(text).stdout)["spec"]["namespaceSelector"]


def test_namespaces_are_selected_by_the_label_with_their_name() -> None:
    by_name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert namespaces_of(policy_of(spread={"namespaces": {"include": ["a", "b", "a"]}})) == {
        "matchExpressions": [by_name]
    }
    assert namespaces_of(policy_of(spread={"namespaces": {"exclude": ["a", "b"]}})) == {
        "matchExpressions": [{**by_name, "operator": "NotIn"}]
    }
    both = policy_of(
        evictor={"namespaceLabelSelector": {"matchLabels": {"team": "x"}}}, spread={"namespaces": {"include": ["a"]}}
    )
    assert namespaces_of(both) == {"matchLabels": {"team": "x"}, "matchExpressions": [{**by_name, "values": ["a"]}]}


def test_a_single_namespace_becomes_a_namespaced_policy() -> None:
    policy = only(policy_of(spread={"namespaces": {"include": ["shop"]}}))
    assert (policy.kind, policy.name) == ("RebalancePolicy", "shop/descheduler-p")
    assert "profiles[0].pluginConfig[1].args.namespaces.include: One namespace" in comments(
        policy_of(spread={"namespaces": {"include": ["shop"]}})
    )


def test_profiles_become_policies_with_names_and_priorities() -> None:
    document = yaml.safe_load(policy_of(name="Some Profile"))
    document["profiles"] = [
        yaml.safe_load(policy_of(name=name))["profiles"][0] for name in ("Some Profile", "some-profile", "")
    ]
    document["profiles"][2]["pluginConfig"][1]["args"] = {"namespaces": {"include": ["shop"]}}
    first, second, third = written(yaml.safe_dump(document))
    assert [first.name, second.name, third.name] == [
        "descheduler-some-profile",
        "descheduler-some-profile-2",
        "shop/descheduler",
    ]
    assert [each.spec.priority for each in (first, second, third)] == [1, 0, 0]


LIMITS: dict[str, Any] = {
    "maxNoOfPodsToEvictTotal": 20,
    "maxNoOfPodsToEvictPerNamespace": 7,
    "maxNoOfPodsToEvictPerNode": 20_000,
}


def test_limits_of_one_run_become_in_flight_limits() -> None:
    limits = only(policy_of(**LIMITS)).spec.limits
    assert (limits.in_flight, limits.in_flight_per_namespace, limits.in_flight_per_node) == (20, 7, 10_000)
    assert limits.per_hour is None
    assert "How often descheduler runs is not known" in comments(policy_of(**LIMITS))


def test_a_limit_of_zero_does_not_become_unlimited() -> None:
    text = policy_of(maxNoOfPodsToEvictTotal=0)
    assert "limits" not in yaml.safe_load(run(text).stdout)["spec"]
    assert "CAUTION: maxNoOfPodsToEvictTotal: With 0 descheduler evicts nothing." in comments(text)


@pytest.mark.parametrize(("given", "seconds"), [(30, 30), (0, None), (100_000, 86_400)])
def test_grace_periods_are_kept(given: int, seconds: int | None) -> None:
    text = policy_of(gracePeriodSeconds=given)
    assert only(text).spec.eviction.grace_period_seconds == seconds
    assert "gracePeriodSeconds" in comments(text)


def values(**fields: Any) -> str:
    """Return values of the chart with a policy that restores topology spread."""
    document = yaml.safe_load(policy_of(**LIMITS))
    del document["apiVersion"], document["kind"]
    return yaml.safe_dump({"deschedulerPolicy": document, **fields})


@pytest.mark.parametrize(
    ("schedule", "window", "per_hour"),
    [
        ("*/2 * * * *", None, 600),
        ("17 * * * *", None, 20),
        ("@hourly", None, 20),
        ("0 2 * * *", "0 2 * * *", 20),
        ("30 1 ? * 6,7", "30 1 * * 6,7", 20),
        ("5-59/10 1-3 * JAN-MAR MON-FRI", "5 1-3 * JAN-MAR MON-FRI", 120),
        ("@daily", "0 0 * * *", 20),
        ("@weekly", "0 0 * * 0", 20),
        ("@every 90m", None, None),
    ],
)
def test_a_cron_job_schedule_becomes_windows(schedule: str, window: str | None, per_hour: int | None) -> None:
    policy = only(values(schedule=schedule, timeZone="Europe/Berlin"))
    assert [each.schedule for each in policy.spec.windows] == ([window] if window else [])
    assert {each.time_zone for each in policy.spec.windows} <= {"Europe/Berlin"}
    assert {each.duration.total_seconds() for each in policy.spec.windows} <= {3600}
    assert policy.spec.limits.per_hour == per_hour


def test_the_time_zone_of_a_cron_job_is_kept() -> None:
    assert only(values(schedule="CRON_TZ=Asia/Tokyo 0 2 * * *")).spec.windows[0].time_zone == "Asia/Tokyo"
    assert only(values(schedule="0 2 * * *")).spec.windows[0].time_zone == "UTC"
    assert "the clock of the kube-controller-manager" in comments(values(schedule="0 2 * * *"))


@pytest.mark.parametrize(("interval", "per_hour"), [("5m", 240), ("10m", 120), ("24h", 1), (None, 240)])
def test_a_deployment_has_no_windows_and_a_limit_per_hour_from_its_interval(
    interval: str | None, per_hour: int
) -> None:
    given = {} if interval is None else {"deschedulingInterval": interval}
    spec = only(values(kind="Deployment", schedule="0 2 * * *", **given)).spec
    assert spec.windows == ()
    assert spec.limits.per_hour == per_hour


def test_a_suspended_cron_job_and_its_options_have_comments() -> None:
    said = comments(values(schedule="0 2 * * *", suspend=True, cmdOptions={"dry-run": None, "v": 3, "secure-port": 9}))
    assert "suspend: The CronJob of the chart does not run now: leave mode at DryRun" in said
    assert "cmdOptions.dry-run: The policy's mode is DryRun in any case." in said
    assert "cmdOptions.v: It is --log-level of respread run." in said
    assert "cmdOptions.secure-port: It is about descheduler's own process" in said


def test_defaults_of_the_helm_chart_are_added_to_values() -> None:
    spec = only("schedule: 0 2 * * *").spec
    assert (spec.victims.local_storage, spec.victims.persistent_volume_claims) == ("Evict", "Protect")
    assert spec.windows[0].schedule == "0 2 * * *"
    assert "deschedulerPolicy.profiles: Not in these values, so the chart's default holds" in comments(
        "schedule: 0 2 * * *"
    )
    old = only(
        "deschedulerPolicy: {evictLocalStoragePods: true, strategies: {RemoveDuplicates: {enabled: false}}}"
    ).spec
    assert (old.victims.local_storage, old.victims.persistent_volume_claims) == ("Evict", "Evict")
    assert only("deschedulerPolicy: {evictLocalStoragePods: true}").spec == old
    assert written(f"deschedulerPolicy: {{strategies: {{{SPREAD}: {{enabled: false}}}}}}") == ()
    assert written(f"deschedulerPolicy: {{strategies: {{{SPREAD}: null}}}}") == ()
    assert written("deschedulerPolicy: {profiles: []}") == ()


def test_output_of_helm_get_values_and_values_of_a_subchart_are_accepted() -> None:
    assert (
        only(
            "USER-SUPPLIED VALUES:\ndeschedulerPolicy: {maxNoOfPodsToEvictPerNode: 3}\n"
        ).spec.limits.in_flight_per_node
        == 3
    )
    assert only("descheduler: {deschedulerPolicy: {maxNoOfPodsToEvictPerNode: 3}}").spec.limits.in_flight_per_node == 3


CONFIG_MAP = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: %s, namespace: tools}
    data:
      policy.yaml: |
        apiVersion: descheduler/v1alpha2
        kind: DeschedulerPolicy
        profiles: [{name: %s, plugins: {balance: {enabled: [RemovePodsViolatingTopologySpreadConstraint]}}}]
"""
CRON_JOB = """
    apiVersion: batch/v1
    kind: CronJob
    metadata: {name: job, namespace: tools}
    spec:
      schedule: %s
      timeZone: Europe/Berlin
      jobTemplate:
        spec:
          template:
            spec:
              containers: [{name: d, image: registry/descheduler:v0.36.0, args: [--v=3]}]
              volumes: [{name: policy, configMap: {name: %s}}]
"""


def test_cron_jobs_open_windows_for_their_mounted_policies() -> None:
    documents = (
        CONFIG_MAP % ("a", "A"),
        CONFIG_MAP % ("b", "B"),
        CRON_JOB % ("0 2 * * *", "a"),
        CRON_JOB % ("0 4 * * *", "b"),
    )
    first, second = written("---".join(documents))
    assert [each.schedule for each in first.spec.windows] == ["0 2 * * *"]
    assert [each.schedule for each in second.spec.windows] == ["0 4 * * *"]
    assert first.spec.windows[0].time_zone == "Europe/Berlin"


def test_a_cron_job_applies_to_a_plain_policy_beside_it(tmp_path: Path) -> None:
    policy, job = tmp_path / "policy.yaml", tmp_path / "job.yaml"
    policy.write_text(policy_of(), encoding="utf-8")
    job.write_text(dedent(CRON_JOB % ("0 2 * * *", "whatever")), encoding="utf-8")
    done = run("", policy, job)
    assert yaml.safe_load(done.stdout)["spec"]["windows"][0]["schedule"] == "0 2 * * *"
    assert f"{job}: spec.jobTemplate.spec.template.spec.containers[0].args[0]: It is --log-level" in " ".join(
        line.removeprefix("#").strip() for line in done.stdout.splitlines()
    )


def test_a_policy_of_both_a_deployment_and_a_cron_job_has_no_windows() -> None:
    deployment = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: d, namespace: tools}
    spec: {replicas: 0, template: {spec: {containers: [{image: descheduler, args: [--descheduling-interval=1h]}]}}}
    """
    text = "---".join([policy_of(**LIMITS), dedent(CRON_JOB % ("0 2 * * *", "x")), dedent(deployment)])
    assert only(text).spec.windows == ()
    assert "No windows, since descheduler is run at other times as well." in comments(text)
    assert "Deployment tools/d does not run now" in comments(text)


def test_other_workloads_and_kinds_are_ignored() -> None:
    other = dedent(CRON_JOB % ("0 2 * * *", "x")).replace("descheduler", "backup")
    assert only("---\n".join([policy_of(), other, "{apiVersion: v1, kind: ServiceAccount}\n"])).spec.windows == ()


def test_lists_from_kubectl_get_are_accepted() -> None:
    items = [yaml.safe_load(CONFIG_MAP % ("a", "A")), yaml.safe_load(CRON_JOB % ("0 2 * * *", "a"))]
    assert (
        only(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})).spec.windows[0].schedule
        == "0 2 * * *"
    )


def test_v1alpha1_migrates_to_the_same_policy() -> None:
    text = old_policy_of(
        {
            "thresholdPriority": 7,
            "includeSoftConstraints": True,
            "nodeFit": True,
            "namespaces": {"exclude": ["a"]},
            "labelSelector": {"matchLabels": {"a": "b"}},
        },
        evictLocalStoragePods=True,
        ignorePvcPods=True,
        maxNoOfPodsToEvictPerNode=3,
    )
    spec = only(text).spec
    assert spec.victims.priority_threshold.value == 7
    assert (spec.victims.local_storage, spec.victims.persistent_volume_claims) == ("Evict", "Protect")
    assert spec.constraints.when_unsatisfiable == ("DoNotSchedule", "ScheduleAnyway")
    assert spec.limits.in_flight_per_node == 3
    assert dict(spec.pod_selector.match_labels) == {"a": "b"}
    assert f"strategies.{SPREAD}.params.thresholdPriority" in comments(text)
    assert f"strategies.{SPREAD}.params.nodeFit: Respread only evicts" in comments(text)


BROKEN = {
    "no object": ("- 1", "standard input: must be an object"),
    "nothing": ("", "there is no policy of descheduler in it: give a DeschedulerPolicy, a ConfigMap"),
    "something else": ("{a: 1}", "there is no policy of descheduler in it"),
    "no YAML": ("{", "standard input is not YAML"),
    "another version": (
        "{apiVersion: descheduler/v1beta1, kind: DeschedulerPolicy}",
        'apiVersion: "descheduler/v1beta1" can\'t be read: it must be descheduler/v1alpha1 or descheduler/v1alpha2',
    ),
    "no version": ("{kind: DeschedulerPolicy}", "apiVersion: is required"),
    "neither version nor kind": ("{profiles: []}", "apiVersion: is required: descheduler/v1alpha2"),
    "a count": (
        policy_of(evictor={"minReplicas": "3"}),
        "profiles[0].pluginConfig[0].args.minReplicas: must be a whole",
    ),
    "a flag": (policy_of(evictor={"nodeFit": "yes"}), 'args.nodeFit: must be true or false, not "yes"'),
    "an age": (policy_of(evictor={"minPodAge": "1d"}), "args.minPodAge: must be a duration such as 30s, 5m or 1h30m"),
    "two thresholds": (
        policy_of(evictor={"priorityThreshold": {"name": "a", "value": 1}}),
        "args.priorityThreshold: set either name or value, not both",
    ),
    "too high a threshold": (
        policy_of(evictor={"priorityThreshold": {"value": 2_000_000_001}}),
        "priorityThreshold.value",
    ),
    "too high a class": (
        policy_of(evictor={"priorityThreshold": {"name": "system-node-critical"}}),
        "priorityThreshold.name: descheduler refuses system-node-critical",
    ),
    "no class": (policy_of(evictor={"priorityThreshold": {"name": "A B"}}), "args.priorityThreshold"),
    "a protection": (
        policy_of(evictor={"podProtections": {"extraEnabled": ["PodsWithPV"]}}),
        "podProtections.extraEnabled[0]: must be PodsWithPVC or",
    ),
    "old and new": (
        policy_of(evictor={"ignorePvcPods": True, "podProtections": {"defaultDisabled": ["DaemonSetPods"]}}),
        "args.ignorePvcPods: is deprecated, and can't be set beside profiles[0].pluginConfig[0].args.podProtections",
    ),
    "a selector": (
        policy_of(spread={"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
        "args.labelSelector.matchExpressions[0].operator: must be In or NotIn",
    ),
    "a label": (
        policy_of(spread={"labelSelector": {"matchLabels": {"a": "b c"}}}),
        "args.labelSelector: must be a label value",
    ),
    "both lists": (
        policy_of(spread={"namespaces": {"include": ["a"], "exclude": ["b"]}}),
        "args.namespaces: set either include or exclude, not both",
    ),
    "no namespace": (
        policy_of(spread={"namespaces": {"include": ["A"]}}),
        'include[0]: must be the name of a namespace, not "A"',
    ),
    "a constraint": (policy_of(spread={"constraints": ["DoNotSchedul"]}), "constraints[0]: must be DoNotSchedule or"),
    "a limit": (policy_of(maxNoOfPodsToEvictPerNode=-1), "maxNoOfPodsToEvictPerNode: must be a whole number from 0"),
    "the wrong place": (
        (
            "{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{name: a, plugins: {deschedule: "
            f"{{enabled: [{SPREAD}]}}}}}}]}}"
        ),
        "profiles[0].plugins.deschedule.enabled[0]: RemovePodsViolatingTopologySpreadConstraint is a plugin of the",
    ),
    "no plugin": (
        "{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{plugins: {balance: {enabled: [1]}}}]}",
        "profiles[0].plugins.balance.enabled[0]: must be the name of a plugin, not 1",
    ),
    "both thresholds of a strategy": (
        old_policy_of({"thresholdPriority": 1, "thresholdPriorityClassName": "a"}),
        f"strategies.{SPREAD}.params: set either thresholdPriority or thresholdPriorityClassName",
    ),
    "a schedule": (values(schedule="0 25 * * *"), "schedule: must be a cron expression of five fields"),
    "too many fields": (values(schedule="0 0 2 * * *"), "schedule: must be a cron expression of five fields"),
    "a time zone": (values(schedule="0 2 * * *", timeZone="Mars/X"), 'timeZone: there is no time zone "Mars/X"'),
    "a kind": (values(kind="DaemonSet"), 'kind: must be CronJob or Deployment, not "DaemonSet"'),
    "an interval": (
        values(kind="Deployment", deschedulingInterval="often"),
        "deschedulingInterval: must be a duration",
    ),
    "no policy in values": ("deschedulerPolicy: null\n", "deschedulerPolicy: the chart writes no policy with null"),
    "a ConfigMap": (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {policy.yaml: '{'}}",
        "standard input, ConfigMap a, policy.yaml: is not YAML",
    ),
    "a CronJob": (CRON_JOB % ("7", "a"), "spec.schedule: is required"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_input_that_the_descheduler_rejects_is_rejected_with_its_field(name: str) -> None:
    text, said = BROKEN[name]
    assert said in refusal(text)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(policy_of(evictor={"minReplicas": -1, "nodeFit": 1}), encoding="utf-8")
    done = run("", file)
    assert done.exit_code == 2
    assert "2 mistakes:" in done.stderr
    assert done.stderr.count(f"{file}: profiles[0].pluginConfig[0].args.") == 2


@pytest.mark.parametrize("kind", [DeschedulerPolicy, DefaultEvictorArgs, SpreadArgs, V1alpha1Policy, SpreadParams])
def test_every_setting_is_documented_in_coming_from_descheduler(kind: type[msgspec.Struct]) -> None:
    passed = {"apiVersion", "kind", "metadata"}
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in passed:
            assert f"`{field.encode_name}`" in SETTINGS


def test_the_documented_example_is_the_output() -> None:
    given, shown = DOCUMENTATION.split("```yaml\n")[1:3]
    assert run(given.split("```")[0]).stdout.replace("standard input", "policy.yaml") == shown.split("```")[0]


def test_migrate_imports_neither_http_clients_nor_kopf() -> None:
    look = (
        "import sys, io\nsys.stdin = io.StringIO('schedule: 0 2 * * *')\n"
        "from respread_cli.commands.migrate import migrate\nmigrate(standalone_mode=False, args=[])\n"
        "print(sorted({'aiohttp', 'kopf', 'kubernetes', 'pykube', 'requests', 'urllib3'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert shown.stdout.endswith("[]\n")
