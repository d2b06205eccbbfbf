"""Every answer of the real Eviction API that can be provoked, and its effect on pods and budgets."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from respread.api.reasons import Held, Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.pod import Pod
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.eviction_api import EvictionApi
from respread_sandbox import Sandbox
from tests import evicting
from tests.integration.admission_webhook import NAME as WEBHOOK
from tests.integration.admission_webhook import NO_ANSWER, admission_webhook
from tests.integration.eviction_cluster import EvictionCluster, with_requests
from tests.processes import wait_until


@pytest.fixture
def cluster(api_sandbox: Sandbox) -> EvictionCluster:
    return EvictionCluster(api_sandbox)


def evict(
    cluster: EvictionCluster,
    pod: Pod,
    *,
    last_look: Callable[[], Held | None] = lambda: None,
    kubeconfig: Path | None = None,
    **options: Any,
) -> Answer | Held:
    return with_requests(
        kubeconfig or cluster.sandbox.kubeconfig,
        lambda requests: evicting.evict(EvictionApi(requests), pod, last_look, **options),
    )


def answer(cluster: EvictionCluster, pod: Pod, **options: Any) -> Answer:
    found = evict(cluster, pod, **options)
    assert isinstance(found, Answer)
    return found


class TestAccepted:
    """201: the pod is deleted, and its budget, if it applies, has one disruption less."""

    def test_a_pod_without_a_budget_is_evicted(self, cluster: EvictionCluster) -> None:
        assert answer(cluster, cluster.add_pod("a")) == Answer(result=EvictionResult.EVICTED)
        assert not cluster.exists("a")

    def test_a_pod_within_a_budget_is_evicted(self, cluster: EvictionCluster) -> None:
        cluster.add_budget(disruptionsAllowed=2)
        assert answer(cluster, cluster.add_pod("a")).evicted
        status = cluster.budget_status()
        assert status["disruptionsAllowed"] == 1
        assert list(status["disruptedPods"]) == ["a"]

    @pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
    def test_pods_that_need_no_budget_are_evicted(self, cluster: EvictionCluster, phase: str) -> None:
        cluster.add_budget(disruptionsAllowed=0)
        cluster.add_budget("another", disruptionsAllowed=0)
        assert answer(cluster, cluster.add_pod("a", phase=phase)).evicted
        assert not cluster.exists("a")

    def test_an_empty_selector_selects_all_pods_and_an_absent_one_none(self, cluster: EvictionCluster) -> None:
        cluster.add_budget("nothing", spec={"selector": None}, disruptionsAllowed=0)
        assert answer(cluster, cluster.add_pod("a")).evicted
        cluster.add_budget("everything", spec={"selector": {}}, disruptionsAllowed=0)
        assert answer(cluster, cluster.add_pod("b")).result is EvictionResult.HELD_BY_BUDGET

    def test_unready_pods_are_evicted_if_the_budget_always_allows_it(self, cluster: EvictionCluster) -> None:
        always = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
        cluster.add_budget(spec=always, disruptionsAllowed=0, currentHealthy=0)
        assert answer(cluster, cluster.add_pod("a", ready=False)).evicted

    @pytest.mark.parametrize("policy", [None, "IfHealthyBudget"])
    def test_unready_pods_of_a_healthy_budget_are_evicted(self, cluster: EvictionCluster, policy: str | None) -> None:
        cluster.add_budget(
            spec={"unhealthyPodEvictionPolicy": policy}, disruptionsAllowed=0, currentHealthy=2, desiredHealthy=2
        )
        assert answer(cluster, cluster.add_pod("a", ready=False)).evicted
        assert "disruptedPods" not in cluster.budget_status()

    def test_the_grace_period_is_that_of_the_pod_or_of_the_policy(self, cluster: EvictionCluster) -> None:
        for name, ours, lasts in (("own", None, 77), ("ours", 5, 5), ("none", 0, None)):
            pod = cluster.add_pod(name, grace_period_seconds=77)
            assert answer(cluster, pod, grace_period_seconds=ours).evicted
            if lasts is None:
                assert not cluster.exists(name)
            else:
                found = cluster.request("GET", f"/api/v1/{{}}/pods/{name}")
                assert found["metadata"]["deletionGracePeriodSeconds"] == lasts
                conditions = {each["type"] for each in found["status"]["conditions"]}
                assert "DisruptionTarget" in conditions

    def test_a_pod_with_a_grace_period_of_zero_gets_one_second(self, cluster: EvictionCluster) -> None:
        cluster.add_pod("own", grace_period_seconds=0)
        pod = Decoder().decode_object("pods", cluster.request("GET", "/api/v1/{}/pods/own"))
        assert isinstance(pod, Pod)
        assert answer(cluster, pod).evicted
        found = cluster.request("GET", "/api/v1/{}/pods/own")  # until its kubelet reports that it has stopped
        assert found["metadata"]["deletionGracePeriodSeconds"] == 1

    def test_a_dry_run_evaluates_budgets_and_changes_nothing(self, cluster: EvictionCluster) -> None:
        cluster.add_budget(disruptionsAllowed=1)
        pod = cluster.add_pod("a")
        assert answer(cluster, pod, dry_run=True).evicted
        assert cluster.exists("a")
        assert cluster.budget_status()["disruptionsAllowed"] == 1
        assert answer(cluster, pod).evicted
        assert answer(cluster, cluster.add_pod("b"), dry_run=True).result is EvictionResult.HELD_BY_BUDGET


class TestRefused:
    """In each case the pod stays and the budget loses no disruption."""

    @pytest.fixture
    def refused(self, cluster: EvictionCluster) -> Any:
        def check(name: str, **options: Any) -> tuple[EvictionResult, Reason | None, str, float | None]:
            before = cluster.request("GET", "/apis/policy/v1/{}/poddisruptionbudgets")["items"]
            found = answer(cluster, cluster.pod(name), **options)
            assert cluster.request("GET", "/apis/policy/v1/{}/poddisruptionbudgets")["items"] == before
            assert cluster.exists(name)
            assert not found.may_have_evicted
            return found.result, found.held.reason if found.held else None, found.message, found.retry_after_seconds

        return check

    def test_a_budget_without_disruptions_refuses(self, cluster: EvictionCluster, refused: Any) -> None:
        cluster.add_budget(disruptionsAllowed=0, currentHealthy=2)
        cluster.add_pod("a")
        result, reason, message, retry_after = refused("a")
        assert (result, reason, retry_after) == (EvictionResult.HELD_BY_BUDGET, Reason.HELD_BY_BUDGET, None)
        assert "The disruption budget web needs 2 healthy pods and has 2 currently" in message

    def test_an_unhealthy_budget_refuses_unready_pods(self, cluster: EvictionCluster, refused: Any) -> None:
        cluster.add_budget(disruptionsAllowed=0, currentHealthy=1, desiredHealthy=2)
        cluster.add_pod("a", ready=False)
        assert refused("a")[0] is EvictionResult.HELD_BY_BUDGET

    def test_a_budget_with_an_old_observed_generation_refuses(self, cluster: EvictionCluster, refused: Any) -> None:
        cluster.add_budget(disruptionsAllowed=3)
        cluster.request("PATCH", "/apis/policy/v1/{}/poddisruptionbudgets/web", {"spec": {"minAvailable": 1}})
        cluster.add_pod("a")
        result, reason, message, retry_after = refused("a")
        assert (result, reason, retry_after) == (EvictionResult.BUDGET_OUT_OF_DATE, Reason.BUDGET_OUT_OF_DATE, 10)
        assert "still being processed" in message

    def test_two_budgets_refuse(self, cluster: EvictionCluster, refused: Any) -> None:
        cluster.add_budget("one", disruptionsAllowed=3)
        cluster.add_budget("two", disruptionsAllowed=3)
        cluster.add_pod("a")
        assert refused("a")[:2] == (EvictionResult.OVERLAPPING_BUDGETS, Reason.OVERLAPPING_BUDGETS)

    def test_a_budget_with_too_many_disrupted_pods_refuses(self, cluster: EvictionCluster, refused: Any) -> None:
        disrupted = {f"pod-{number}": "2026-11-21T09:00:00Z" for number in range(2000)}
        cluster.add_budget(disruptionsAllowed=3, disruptedPods=disrupted)
        assert answer(cluster, cluster.add_pod("a")).evicted, "these are not too many"
        cluster.add_pod("b")
        result, reason, message, _ = refused("b")
        assert (result, reason) == (EvictionResult.BUDGET_REFUSED, Reason.HELD_BY_BUDGET)
        assert "DisruptedPods map too big" in message

    def test_missing_permissions_are_reported(self, cluster: EvictionCluster, refused: Any) -> None:
        account = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
        cluster.sandbox.api.request("POST", account, {"metadata": {"name": "reader"}})
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
        rbac = "/apis/rbac.authorization.k8s.io/v1/{}"
        cluster.request("POST", f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
        binding = {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": cluster.namespace}],
        }
        cluster.request("POST", f"{rbac}/rolebindings", binding)
        cluster.add_pod("a")
        kubeconfig = cluster.sandbox.kubeconfig_for_service_account(cluster.namespace, "reader")
        wait_until(lambda: cluster.may(kubeconfig, "get", "pods"), "the role to take effect")
        result, reason, message, _ = refused("a", kubeconfig=kubeconfig)
        assert (result, reason) == (EvictionResult.FORBIDDEN, Reason.EVICTION_REFUSED)
        assert 'cannot create resource "pods/eviction"' in message

    def test_invalid_credentials_are_reported(self, cluster: EvictionCluster, refused: Any, tmp_path: Path) -> None:
        cluster.add_pod("a")
        config = cluster.sandbox.kubeconfig.read_text(encoding="utf-8")
        wrong = tmp_path / "kubeconfig"
        lines = [
            line.partition("token:")[0] + "token: wrong" if "token:" in line else line for line in config.splitlines()
        ]
        wrong.write_text("\n".join(lines), encoding="utf-8")
        assert refused("a", kubeconfig=wrong)[:2] == (EvictionResult.UNAUTHORIZED, Reason.EVICTION_REFUSED)

    def test_a_webhook_refuses_with_any_code_or_without_an_answer(
        self, cluster: EvictionCluster, refused: Any, tmp_path: Path
    ) -> None:
        """Webhooks that move pods themselves deny evictions with 429 or 500. None of these answers is about others."""
        denials = {"denied": 403, "not-now": 429, "moved": 500, "missing": 404, "silent": NO_ANSWER}
        for name in denials:
            cluster.add_pod(name)
        with admission_webhook(cluster.sandbox, tmp_path, cluster.namespace, denials):
            wait_until(lambda: not answer(cluster, cluster.pod("denied"), dry_run=True).evicted, "the webhook")
            for name in denials:
                result, reason, message, _ = refused(name)
                assert (name, result, reason) == (name, EvictionResult.FORBIDDEN, Reason.EVICTION_REFUSED)
                assert f'webhook "{WEBHOOK}"' in message


class TestGone:
    """The pod no longer exists, and no budget is changed."""

    def test_a_missing_pod_is_gone(self, cluster: EvictionCluster) -> None:
        pod = cluster.add_pod("a")
        cluster.request("DELETE", "/api/v1/{}/pods/a")
        found = answer(cluster, pod)
        assert found.result is EvictionResult.GONE
        assert found.held is None

    def test_a_pod_in_a_missing_namespace_is_gone(self, cluster: EvictionCluster) -> None:
        pod = msgspec.structs.replace(cluster.add_pod("a"), namespace="there-is-no-such-namespace")
        assert answer(cluster, pod).result is EvictionResult.GONE

    def test_a_terminating_pod_is_gone(self, cluster: EvictionCluster) -> None:
        pod = cluster.add_pod("a", finalizer=True)
        cluster.request("DELETE", "/api/v1/{}/pods/a")
        found = answer(cluster, pod)
        assert found.result is EvictionResult.GONE
        assert "terminating since 20" in found.message

    def test_another_pod_of_that_name_costs_the_budget_nothing(self, cluster: EvictionCluster) -> None:
        cluster.add_budget()
        before = cluster.add_pod("a")
        cluster.request("DELETE", "/api/v1/{}/pods/a")
        after = cluster.add_pod("a")
        found = answer(cluster, before)
        assert found.result is EvictionResult.CHANGED
        assert after.uid in found.message
        assert cluster.exists("a")
        assert cluster.budget_status()["disruptionsAllowed"] == 1


class TestBetweenReadingAndEvicting:
    """The pod or its namespace changes between the read of the pod and its eviction."""

    def test_a_new_pod_of_the_same_name_is_not_evicted(self, cluster: EvictionCluster) -> None:
        cluster.add_budget()
        pod = cluster.add_pod("a")

        def replace() -> None:
            cluster.request("DELETE", "/api/v1/{}/pods/a")
            cluster.add_pod("a")

        found = answer(cluster, pod, last_look=replace)
        assert found.result is EvictionResult.CHANGED
        assert "the UID in the precondition" in found.message
        assert cluster.exists("a")
        # the budget lost a disruption for nothing, which is why the pod is read first
        assert cluster.budget_status()["disruptionsAllowed"] == 0

    def test_a_pod_that_is_deleted_meanwhile_is_gone(self, cluster: EvictionCluster) -> None:
        pod = cluster.add_pod("a")
        found = answer(cluster, pod, last_look=lambda: cluster.request("DELETE", "/api/v1/{}/pods/a") and None)
        assert found.result is EvictionResult.GONE

    def test_a_terminating_namespace_refuses(self, cluster: EvictionCluster) -> None:
        cluster.add_budget()
        pod = cluster.add_pod("a")
        cluster.sandbox.api.request("DELETE", f"/api/v1/namespaces/{cluster.namespace}")
        found = answer(cluster, pod)
        assert found.result is EvictionResult.NAMESPACE_TERMINATING
        assert found.held is not None
        assert found.held.reason is Reason.NAMESPACE_TERMINATING
        assert cluster.exists("a")

    def test_an_eviction_that_the_last_look_holds_is_not_sent(self, cluster: EvictionCluster) -> None:
        closed = Held(Reason.NOT_LEADING, "somebody else leads")
        assert evict(cluster, cluster.add_pod("a"), last_look=lambda: closed) is closed
        assert cluster.exists("a")

    @pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    def test_a_timeout_of_zero_ends_at_once(self, cluster: EvictionCluster) -> None:
        found = answer(cluster, cluster.add_pod("a"), timeout_seconds=0.0)
        # the shortest possible timeout may or may not be enough, but the request ends
        assert found.result in {EvictionResult.EVICTED, EvictionResult.UNKNOWN}
        gc.collect()  # asyncio closes a connection after the server has agreed, and this event loop ended before


def test_an_unreachable_server_is_reported(cluster: EvictionCluster, tmp_path: Path) -> None:
    config = cluster.sandbox.kubeconfig.read_text(encoding="utf-8")
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(config.replace(cluster.sandbox.server, "https://127.0.0.1:1"), encoding="utf-8")
    found = answer(cluster, cluster.add_pod("a"), kubeconfig=nowhere)
    assert found.result is EvictionResult.UNREACHABLE
    assert not found.may_have_evicted
    assert found.held is not None
    assert found.held.reason is Reason.API_UNAVAILABLE
