"""Compares the predictions of `respread simulate` with a real control plane."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from respread_cli.main import respread
from respread_sandbox import Sandbox
from respread_sandbox.nodes import TERMINATE_AFTER_ANNOTATION
from tests.integration.operator_process import OperatorProcess, policy
from tests.integration.prevention_cluster import PREVENTS, RIGHT, all_ready, create
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    HOSTNAME,
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods,
    scale,
    wait_for_ready_pods,
    wait_until,
)


def of_class(operator: str, *values: str) -> dict[str, Any]:
    return {
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}
    }


SCOPES: list[dict[str, Any]] = [
    {},
    *({"scopes": [each]} for each in ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort")),
    {"scopes": ["NotBestEffort", "NotTerminating"]},
    {"scopes": ["CrossNamespacePodAffinity"]},
    of_class("In", "high"),
    of_class("In", "low"),
    of_class("NotIn", "high"),
    of_class("Exists"),
    of_class("DoesNotExist"),
]


def simulate(cluster: Sandbox, *arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(
        respread, ["simulate", *arguments, "-o", "json"], env={"KUBECONFIG": str(cluster.kubeconfig)}
    )
    assert done.exit_code in {0, 1}, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def skew(cluster: Sandbox) -> dict[tuple[str, str], dict[str, int]]:
    """Return the pods per domain of each app and topology key."""
    done = CliRunner().invoke(
        respread, ["skew", "-n", "shop", "-o", "json"], env={"KUBECONFIG": str(cluster.kubeconfig)}
    )
    return {
        (group["workloads"][0]["name"], group["topologyKey"]): group["counts"]
        for group in json.loads(done.stdout)["groups"]
    }


def test_with_prevention_a_scale_down_is_as_predicted(installed_sandbox: Sandbox, tmp_path: Path) -> None:
    cluster = lay_out(installed_sandbox, 4, 4, 4)
    cluster.create_namespace("shop")
    cluster.apply(RIGHT)
    cluster.apply(json.dumps(policy(mode="DryRun", **PREVENTS)))
    rng = random.Random(11)
    replicas = {f"web-{number}": rng.randint(6, 14) for number in range(8)}
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        for name, count in replicas.items():
            create(cluster, name, count)
        wait_until(lambda: all_ready(cluster, replicas, ranked=True), "all pods to be ranked")
        before = {pod["metadata"]["name"] for pod in pods(cluster, "shop")}
        replicas = {name: rng.randint(1, count - 1) for name, count in replicas.items()}
        wanted = [part for name, count in replicas.items() for part in ("--scale", f"deploy/{name}={count}")]
        foretold = simulate(cluster, *wanted, "-n", "shop")
        assert {scaled["reason"] for scaled in foretold["scaled"]} == {"Protected"}
        assert foretold["asItIs"] == foretold["withCosts"]
        assert foretold["asItIs"]["evictions"] == 0
        assert foretold["asItIs"]["certain"]
        for name, count in replicas.items():
            scale(cluster, "shop", name, count)
        wait_until(lambda: all_ready(cluster, replicas, ranked=False), "all pods to be gone")
    gone = before - {pod["metadata"]["name"] for pod in pods(cluster, "shop")}
    assert {pod["pod"] for pod in foretold["asItIs"]["deleted"]} == gone
    found = skew(cluster)
    assert {key for _, key in found} == {ZONE, HOSTNAME}
    assert {
        (group["group"]["workloads"][0]["name"], group["group"]["topologyKey"]): group["asItIs"]["counts"]
        for group in foretold["groups"]
    } == found
    # One more pod of each can go only to the emptiest zones. The node there is only likely.
    grown = simulate(cluster, "--scale", "web-0=12", "--drain", "node-a1", "-n", "shop")
    assert not any(group["asItIs"]["violated"] for group in grown["groups"] if group["group"]["topologyKey"] == ZONE)
    assert all(pod["node"] != "node-a1" for pod in grown["asItIs"]["placed"])
    scale(cluster, "shop", "web-0", 12)
    wait_until(lambda: all_ready(cluster, replicas | {"web-0": 12}, ranked=False), "new pods to be there")
    zones = skew(cluster)["web-0", ZONE]
    likely = {
        group["group"]["topologyKey"]: group["asItIs"]["counts"]
        for group in grown["groups"]
        if group["group"]["workloads"][0]["name"] == "web-0"
    }
    assert likely[ZONE] == zones == {"zone-a": 4, "zone-b": 4, "zone-c": 4}


def test_a_quota_refuses_replacements_of_lost_pods_as_foretold(installed_sandbox: Sandbox) -> None:
    cluster = lay_out(installed_sandbox, 2, 2)
    cluster.create_namespace("shop")
    slowly = {TERMINATE_AFTER_ANNOTATION: "20"}
    web = deployment("web", replicas=4, constraints=[constraint(ZONE, "web")], annotations=slowly)
    create_deployment(cluster, "shop", web)
    wait_for_ready_pods(cluster, "shop", "web", 4)
    quotas = "/api/v1/namespaces/shop/resourcequotas"
    tight = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight"},
        "spec": {"hard": {"pods": "5"}},
    }
    cluster.api.request("POST", quotas, tight)
    used = {"hard": {"pods": "5"}, "used": {"pods": "4"}}
    wait_until(lambda: cluster.api.get(f"{quotas}/tight").get("status") == used, "the quota to count the pods")
    for domain in simulate(cluster, "--each-domain", "zone")["domains"]:
        (said,) = domain["quotas"]
        assert said.endswith("they take 2 of pods, and 4 of 5 are used")
    for pod in pods(cluster, "shop", "web"):
        if pod["spec"]["nodeName"].startswith("node-a"):
            cluster.api.request("DELETE", f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}")

    def refusals() -> list[str]:
        (of_web,) = cluster.api.get("/apis/apps/v1/namespaces/shop/replicasets")["items"]
        return [each["message"] for each in of_web["status"].get("conditions", ()) if each["type"] == "ReplicaFailure"]

    wait_until(lambda: any("exceeded quota: tight" in each for each in refusals()), "a replacement to be refused")


def test_a_quota_with_a_scope_refuses_what_the_api_server_refuses(installed_sandbox: Sandbox) -> None:
    """The judge is a dry run of a pod of the same template."""
    cluster = lay_out(installed_sandbox, 2, 2)
    cluster.create_namespace("shop")
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    cluster.api.request("POST", classes, {"metadata": {"name": "high"}, "value": 5})
    term = {"topologyKey": ZONE, "namespaceSelector": {}, "labelSelector": {"matchLabels": {"app": "nobody"}}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    asks = {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}
    templates: dict[str, dict[str, Any]] = {
        "plain": {"containers": [{"name": "main", "image": "simulated"}]},
        "rich": {
            "containers": [{"name": "main", "image": "simulated", "resources": asks}],
            "priorityClassName": "high",
            "affinity": {"podAntiAffinity": preferred},
        },
    }
    for name, template in templates.items():
        made = deployment(name, replicas=4, constraints=[constraint(ZONE, name)])
        made["spec"]["template"]["spec"] |= template
        create_deployment(cluster, "shop", made)
        wait_for_ready_pods(cluster, "shop", name, 4)
    path = "/api/v1/namespaces/shop/{}"
    hards = ({"pods": "4"}, {"requests.cpu": "450m"}, {"limits.memory": "300Mi"})
    refusals = 0
    for number, scopes in enumerate(SCOPES):
        for hard in hards if "NotBestEffort" in str(scopes) else hards[:1]:
            quota = {"metadata": {"name": f"quota-{number}"}, "spec": {"hard": hard, **scopes}}
            cluster.api.request("POST", path.format("resourcequotas"), quota)
            shown = f"{path.format('resourcequotas')}/quota-{number}"
            wait_until(lambda at=shown: cluster.api.get(at).get("status", {}).get("used"), "the quota to count")  # type: ignore[misc]
            refused = False
            for name, template in templates.items():
                pod = {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", **template}}
                answer = cluster.api.client.session.post(
                    f"{cluster.api.client.url}{path.format('pods')}?dryRun=All", json=pod, timeout=30
                )
                assert answer.status_code in {201, 403}, answer.text
                refused |= answer.status_code == 403
            foretold = simulate(cluster, "--remove-domain", "zone=zone-a")["quotas"]
            assert bool(foretold) is refused, (scopes, hard, foretold)
            refusals += refused
            cluster.api.request("DELETE", shown)
    assert 5 <= refusals < 15
