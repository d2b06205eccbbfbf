"""What is read for the replacement of a pod, from templates and pods of any size and depth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from respread.api.policy import VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.eviction.owners.reading import OwnerReading
from respread.eviction.owners.replacements import ComingReplacements, Replacements
from respread.kube.requests import Response
from respread.moves.ledger import Ledger
from tests.eviction_moves import SPEC, move
from tests.fake_requests import FakeRequests
from tests.worlds import cluster, pod

POD = pod("web-1", "node-1", SPEC)
OF_BOTH: dict[str, Any] = {"containers": [{"name": "main"}], "nodeSelector": {"disk": "hdd"}}
SHOWN: dict[str, Any] = {
    "metadata": {"name": POD.name, "namespace": POD.namespace, "uid": POD.uid, "labels": {"app": "web"}},
    "spec": {**OF_BOTH, "nodeName": "node-1"},
    "status": {"phase": "Running"},
}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "web"}}, "spec": OF_BOTH}


class Server(FakeRequests):
    """An API server with one pod and some ResourceQuotas and LimitRanges."""

    def __init__(
        self,
        uid: str = POD.uid,
        quotas: Sequence[dict[str, Any]] | int = (),
        limit_ranges: Sequence[dict[str, Any]] | int = (),
        answer: str = "",
        code: int = 200,
    ) -> None:
        super().__init__()
        self.uid = uid
        self.body = answer
        self.code = code
        self.rules = {"resourcequotas": quotas, "limitranges": limit_ranges}
        self.read: list[str] = []

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        del options
        self.read.append(f"{method} {path.format(**names)}")
        rules = self.rules.get(path.rpartition("/")[2], ())
        if isinstance(rules, int):
            return Response(status_code=rules, body=b"{}")
        body: dict[str, Any] = {"items": list(rules)}
        if "/pods/" in path:
            body = {**SHOWN, "metadata": {**SHOWN["metadata"], "uid": self.uid}}
        if "/controllerrevisions/" in path:
            body = {"data": {"spec": {"template": TEMPLATE}}}
        if self.body and "items" not in body:
            return Response(status_code=self.code, body=self.body.encode())
        return Response(status_code=200, body=json.dumps(body).encode())


def reading_of(
    template: bytes, *, listed: bool = True, kept: bool = True, of: Pod = POD, **controller: Any
) -> OwnerReading:
    """Return a controller with a template, and a pod that the list of pods contains and shows, or not."""
    given = {
        "kind": "CloneSet" if of.controller is None else of.controller.kind,
        "controller": {"metadata": {"name": "web", "uid": "uid-web"}, **controller},
        "pods": [SHOWN] if listed else [],
    }
    read = msgspec.convert(given, type=OwnerReading)
    spec = msgspec.structs.replace(read.controller.spec, template=msgspec.Raw(template))
    return msgspec.structs.replace(
        read,
        controller=msgspec.structs.replace(read.controller, spec=spec),
        documents={POD.uid: msgspec.Raw(json.dumps(SHOWN).encode())} if kept else {},
    )


RULES, NO_MOVES = VictimRules(), Ledger()


def why_not(
    server: Server, template: bytes, *, of: Pod = POD, rules: VictimRules = RULES, moves: Ledger = NO_MOVES, **read: Any
) -> Held | None:
    """Return the result of the last look at a template."""
    replacements = Replacements(server, lambda: 0.0, 2.0, ComingReplacements())
    return asyncio.run(replacements.why_not(move(of), reading_of(template, of=of, **read), moves, rules))


def test_a_replacement_is_predicted_once_for_what_was_read_once() -> None:
    server, differing = Server(), {**TEMPLATE, "spec": {**OF_BOTH, "nodeSelector": {"disk": "ssd"}}}
    first, other = (reading_of(json.dumps(each).encode(), kept=False) for each in (TEMPLATE, differing))
    replacements = Replacements(server, lambda: 0.0, 2.0, ComingReplacements())
    looks = [asyncio.run(replacements.why_not(move(POD), each, NO_MOVES, RULES)) for each in (first, first, other)]
    assert [each and each.reason for each in looks] == [None, None, Reason.TEMPLATE_DIFFERS]
    assert sum("/pods/" in each for each in server.read) == 2


def test_a_pod_that_the_list_left_out_is_read_by_itself() -> None:
    """Of controllers with very large pods not everything is kept."""
    server, template = Server(), json.dumps(TEMPLATE).encode()
    beside = Ledger().sent(move("another"), cluster([], []), 0.0)  # which matters to quotas alone
    assert why_not(server, template, moves=beside) is None
    assert not any("/pods/" in each for each in server.read)
    assert why_not(server, template, kept=False) is None
    assert server.read.count(f"GET /api/v1/namespaces/default/pods/{POD.name}") == 1
    for gone in (
        why_not(Server("another"), template, kept=False),
        why_not(Server(answer="{}", code=404), template, kept=False),
        why_not(server, template, listed=False, kept=False),
    ):
        assert (gone and gone.reason) is Reason.IN_MOTION


@pytest.mark.parametrize("levels", [50, 400, 900, 5_000])
def test_a_template_of_any_depth_holds_at_most_its_own_pods(levels: int) -> None:
    """The template of a custom resource may contain anything."""
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    template = json.dumps({**TEMPLATE, "spec": {**TEMPLATE["spec"], "more": "DEEP"}}).encode().replace(b'"DEEP"', deep)
    held = why_not(Server(), template)
    assert held is None or held.reason is Reason.API_UNAVAILABLE


@pytest.mark.parametrize(("kind", "reason"), [("ReplicaSet", Reason.REPLACEMENT_REFUSED), ("StatefulSet", None)])
def test_a_full_quota_has_room_for_what_is_created_after_the_pod_is_deleted(kind: str, reason: Reason | None) -> None:
    full = {"hard": {"pods": "3"}, "used": {"pods": "3"}}
    quota = {"metadata": {"name": "most"}, "spec": {"hard": full["hard"]}, "status": full}
    of = pod("web-1", "node-1", SPEC, controller=OwnerReference("apps/v1", kind, "web", "uid-web"))
    held = why_not(Server(quotas=[quota]), json.dumps(TEMPLATE).encode(), of=of)
    assert (held and held.reason) is reason
    in_flight = Ledger().sent(move("another"), cluster([], []), 0.0)
    held = why_not(Server(quotas=[quota]), json.dumps(TEMPLATE).encode(), of=of, moves=in_flight)
    assert "do not show the replacement of another yet" in str(held)
    for code, why in ((403, ""), (500, "the LimitRanges and ResourceQuotas of namespace default could not be read")):
        for server in (Server(quotas=code), Server(limit_ranges=code)):
            held = why_not(server, json.dumps(TEMPLATE).encode(), of=of)
            assert ("" if held is None else held.message).startswith(why)
            before = asyncio.run(Replacements(server, lambda: 0.0, 2.0, ComingReplacements()).why_unknown(of))
            assert (held is None) is (before is None) is (code == 403)


@pytest.mark.parametrize(("kind", "refuses"), [("Container", True), ("PersistentVolumeClaim", False)])
def test_a_pod_stays_if_a_limit_range_would_refuse_its_replacement(kind: str, *, refuses: bool) -> None:
    least = {"metadata": {"name": "least"}, "spec": {"limits": [{"type": kind, "min": {"cpu": "1"}}]}}
    held = why_not(Server(limit_ranges=[least]), json.dumps(TEMPLATE).encode())
    assert (held is not None and held.message.startswith("LimitRange least would refuse")) is refuses


@pytest.mark.parametrize(
    ("kind", "current", "reads", "holds"),
    [
        ("StatefulSet", "web-1", True, False),
        ("StatefulSet", "web-2", False, True),
        ("StatefulSet", "", False, True),
        ("ReplicaSet", "web-1", False, True),
    ],
)
def test_a_pod_of_a_stateful_set_is_compared_with_the_revision_that_it_gets(
    kind: str, current: str, *, reads: bool, holds: bool
) -> None:
    """The newest template has another node selector. With partition 9, the pod is created again at the current one."""
    of = pod("web-1", "node-1", SPEC, controller=OwnerReference("apps/v1", kind, "web", "uid-web"))
    newest = json.dumps({**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"disk": "ssd"}}}).encode()
    server, status = Server(), {"currentRevision": current, "updateRevision": "web-2"}
    states: dict[str, Any] = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 9}}}, "status": status}
    held = why_not(server, newest, of=of, **states)
    assert any("/controllerrevisions/web-1" in each for each in server.read) is reads
    gone = why_not(Server(answer="{}", code=404), newest, of=of, **states)
    assert ((gone and gone.reason) is Reason.IN_MOTION) is reads
    assert (held is not None) is holds
    assert why_not(server, newest, of=of, rules=VictimRules(changed_pods="Evict"), **states) is None


def test_an_answer_that_is_no_object_holds_the_move() -> None:
    held = why_not(Server(answer="[]"), json.dumps(TEMPLATE).encode(), kept=False)
    assert held == Held(Reason.API_UNAVAILABLE, "pod web-1 could not be read")


@pytest.mark.parametrize("code", [403, 500])
def test_a_refused_reading_asks_for_the_cluster_role_if_a_rule_may_be_missing(code: int) -> None:
    held = why_not(Server(answer="{}", code=code), json.dumps(TEMPLATE).encode(), kept=False)
    assert (held and held.reason) is Reason.API_UNAVAILABLE
    assert ("ClusterRole" in str(held)) is (code == 403)
