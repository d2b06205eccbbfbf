"""Annotations of other projects protect pods as these projects and docs/policy.md define."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from immutables import Map

import respread.cluster.meta as known_annotations
from respread.api.policy import VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.meta import OWN_PREFIX, POD_DELETION_COST, OwnerReference, kept_annotations
from respread.cluster.pod import Pod
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.protection import Protection, parse_go_duration
from tests.spreads import spread_of
from tests.unit.api.test_docs import rows
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import NOW, cluster, constraint, node, pod, spec

HOURS = ("3h", "2h0m1s")
DEFAULTS = Protection.of(VictimRules())
KARPENTER = "karpenter.sh/do-not-disrupt"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


def why(
    annotations: dict[str, str], *local_volumes: str, started: timedelta | None = timedelta(hours=2)
) -> Held | None:
    """Return why a pod with these annotations and this start time is protected."""
    start = None if started is None else NOW - started
    storing = spec(has_local_storage=bool(local_volumes), local_volumes=local_volumes)
    return DEFAULTS.of_pod(pod("web-1", "node-1", storing, annotations=Map(annotations), start_time=start), NOW)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        *((KARPENTER, value) for value in ("true", "3h", "2h0m1s", "yes", "", "True", "0", "0s", "-5m", "1d", "30")),
        *((KARPENTER, "3000000h"), (SAFE, "false"), (SAFE, "no"), (SAFE, "False"), (SAFE, ""), (SAFE, "TRUE")),
    ],
)
def test_annotations_of_others_protect_a_pod(annotation: str, value: str) -> None:
    held = why({annotation: value})
    assert held is not None
    assert held.reason is Reason.PROTECTED_POD
    assert f"{annotation} says {value!r}" in held.message
    assert ("counts as" in held.message) is (value not in {"true" if annotation == KARPENTER else "false", *HOURS})


@pytest.mark.parametrize("value", ["false", "2h", "1h59m59.999s", "30m", "1ns", "+1h", "90.5m", ".5h"])
def test_other_values_and_expired_durations_of_karpenters_annotation_do_not_protect(value: str) -> None:
    assert why({KARPENTER: value}) is None


def test_a_duration_counts_from_the_start_of_the_pod_and_the_message_names_its_end() -> None:
    held = why({KARPENTER: "2h30m"})
    assert held is not None
    assert held.until == NOW + timedelta(minutes=30)
    assert "until 2026-11-21T09:30:00+00:00" in held.message
    not_started = why({KARPENTER: "1ns"}, started=None)
    assert not_started is not None
    assert "has not started" in not_started.message
    beyond_the_largest_date = why({KARPENTER: "1h"}, started=NOW - datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
    assert beyond_the_largest_date is not None
    assert beyond_the_largest_date.until is None


def test_after_the_duration_the_pod_is_planned_for_without_any_event() -> None:
    annotations = Map({KARPENTER: "2h"})
    starts = [NOW - timedelta(minutes=number) for number in range(3)]
    three = [
        pod(f"web-{number}", "a1", spec(constraint()), annotations=annotations, start_time=start)
        for number, start in enumerate(starts)
    ]
    snapshot = cluster([node("a1", "a"), node("b1", "b")], three)
    planner, spread, setting = Planner(), spread_of(snapshot), PolicySetting((default_policy(),))
    first = planner.plan(snapshot, spread, setting, now=NOW)
    assert [each.reason for each in first.blocked] == [Reason.PROTECTED_POD]
    assert first.changes_at == starts[2] + timedelta(hours=2)
    early = planner.plan(snapshot, spread, setting, now=first.changes_at - timedelta(microseconds=1))
    assert (early.moves, early.changes_at) == ((), first.changes_at)
    then = planner.plan(snapshot, spread, setting, now=first.changes_at)
    assert [each.pod.name for each in then.moves] == ["web-2"]
    assert then.changes_at == starts[1] + timedelta(hours=2)
    assert planner.plan(snapshot, spread, setting, now=NOW + timedelta(hours=3)).changes_at is None


@pytest.mark.parametrize(
    ("annotations", "volumes", "stays"),
    [
        ({LOCAL: "scratch"}, ("scratch",), False),
        ({LOCAL: "scratch,cache,more"}, ("cache", "scratch"), False),
        ({LOCAL: "scratch"}, ("scratch", "data"), True),
        ({LOCAL: "scratch, cache"}, ("scratch", "cache"), True),
        ({LOCAL: "Scratch"}, ("scratch",), True),
        ({LOCAL: ""}, ("scratch",), True),
        ({LOCAL: "true"}, ("scratch",), True),
        ({SAFE: "true"}, ("scratch", "data"), False),
        ({SAFE: "false", LOCAL: "scratch"}, ("scratch",), True),
        ({LOCAL: "scratch"}, (), False),
    ],
)
def test_named_local_volumes_do_not_protect_a_pod(
    annotations: dict[str, str], volumes: tuple[str, ...], *, stays: bool
) -> None:
    assert (why(annotations, *volumes) is not None) is stays


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30m", timedelta(minutes=30)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("-1.5h", timedelta(minutes=-90)),
        ("+.5s", timedelta(milliseconds=500)),
        ("1.s", timedelta(seconds=1)),
        ("1us1\u00b5s1\u03bcs", timedelta(microseconds=3)),
        ("1ns", timedelta(microseconds=1)),
        ("0", timedelta(0)),
        ("-0", timedelta(0)),
        ("2562047h47m16.854775807s", timedelta(microseconds=9223372036854776)),
        *dict.fromkeys(("2562047h47m16.854775808s", "9" * 200 + "h", "0" * 254 + "1ns")).items(),
        ("0" * 253 + "1ns", timedelta(microseconds=1)),
        *dict.fromkeys(["", "-", "s", ".s", "1", "1 h", "1h ", "1d", "1w", "1hh", "--1h", "1e3s", "\u0661h"]).items(),
    ],
)
def test_durations_are_parsed_as_in_go(text: str, duration: timedelta | None) -> None:
    assert parse_go_duration(text) == duration


def decoded(annotations: dict[str, str]) -> Pod:
    found = Decoder().decode_object(
        "pods",
        {
            "metadata": {"namespace": "shop", "name": "web-1", "uid": "u-1", "annotations": annotations},
            "spec": {
                "containers": [],
                "terminationGracePeriodSeconds": 0,
                "volumes": [
                    {"name": "kube-api-access-x7k2p", "projected": {"sources": []}},
                    {"name": "scratch", "emptyDir": {}},
                    {"name": "logs", "hostPath": {"path": "/var/log"}},
                    {"name": "fast", "emptyDir": {"medium": "Memory"}},
                ],
            },
            "status": {"startTime": "2026-11-21T08:00:00Z"},
        },
    )
    assert isinstance(found, Pod)
    return found


def test_only_fields_that_the_annotations_need_are_kept() -> None:
    assert decoded({KARPENTER: "1h"}).start_time == datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert decoded({LOCAL: "scratch"}).spec.local_volumes == ("scratch", "logs")
    plain = decoded({})
    assert plain.spec.stops_without_grace
    assert plain.spec.has_local_storage
    assert (plain.start_time, plain.spec.local_volumes) == (None, ())
    assert DEFAULTS.of_pod(decoded_of_web({LOCAL: "scratch,logs"}), NOW) is None
    assert DEFAULTS.of_pod(decoded_of_web({LOCAL: "scratch"}), NOW) is not None


def decoded_of_web(annotations: dict[str, str]) -> Pod:
    owner = OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web")
    return msgspec.structs.replace(decoded(annotations), controller=owner, node_name="node-1")


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_documented_annotations_protect_as_documented() -> None:
    for annotation, rest in rows("## Annotations that protect pods").items():
        _, protects, frees = (cell.strip(" |") for cell in rest.split(" | "))
        if annotation == LOCAL:
            assert words(frees)
            assert all(why({LOCAL: word}, *word.split(",")) is None for word in words(frees))
            assert why({LOCAL: words(frees)[0]}, "another") is not None
            continue
        for word in set(words(protects)) - {"true" if annotation == SAFE else "", "status.startTime"}:
            assert why({annotation: word}, started=timedelta(minutes=1)) is not None, (annotation, word)
        for word in words(frees):
            assert why({annotation: word}, started=timedelta(minutes=1)) is None, (annotation, word)


def test_the_documented_annotations_are_those_of_the_code() -> None:
    known = {value for name, value in vars(known_annotations).items() if name.isupper() and isinstance(value, str)}
    read = {each for each in known if kept_annotations({each: ""})} - {
        OWN_PREFIX,
        POD_DELETION_COST,
        known_annotations.VERSION,
    }
    assert set(rows("## Annotations that protect pods")) == read
    assert kept_annotations({"descheduler.alpha.kubernetes.io/evict": "true"}) == {}, "it overrides no protection"
