"""The informers on the real API server: they load the state, keep it correct through all changes, and stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from respread.api.policy import PolicyKind
from respread.cluster.meta import ObjectKey
from respread.cluster.stores import PODS
from respread.handlers.session import open_session
from respread_sandbox import ApiError, Binaries, Sandbox, SandboxOptions
from tests.integration.definitions import delete_definitions, wait_until_served
from tests.integration.etcd import Etcd
from tests.integration.watching import Watches, pod, request, running_watches
from tests.policy_specs import policy_manifest
from tests.processes import wait_until

CRDS = Path(__file__).parents[3] / "crds"
DEFINED = tuple(each.stem for each in CRDS.glob("*.respread.dev.yaml"))
API_SERVER_ONLY = SandboxOptions(nodes=0, scheduler=False, controller_manager=False, kwok=False)


@pytest.fixture(scope="module")
def cluster(api_sandbox: Sandbox) -> Sandbox:
    """An API server with our CRDs."""
    api_sandbox.apply(CRDS)
    return api_sandbox


@pytest.fixture
def team(cluster: Sandbox) -> str:
    """A namespace of the test's own."""
    name = f"team-{secrets.token_hex(4)}"
    cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture(scope="module")
def bare_cluster(binaries: Binaries) -> Iterator[Sandbox]:
    """An API server that caches no old pages of lists."""
    flags = ("--feature-gates=ListFromCacheSnapshot=false",)
    with Sandbox.start(msgspec.structs.replace(API_SERVER_ONLY, apiserver_flags=flags), binaries=binaries) as running:
        yield running


@pytest.fixture
def own_cluster(bare_cluster: Sandbox) -> Sandbox:
    """The same without our CRDs, which tests may install."""
    delete_definitions(bare_cluster, *DEFINED)
    return bare_cluster


def pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


# -- lists and events ----------------------------------------------------------------------------------------------


async def test_a_list_of_several_pages_is_stored_completely(cluster: Sandbox, team: str) -> None:
    names = {f"web-{number}" for number in range(510)}  # a page holds 500
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: cluster.api.request("POST", pods_of(team), pod(name)), names))

    try:
        async with running_watches(cluster.kubeconfig) as watches:
            assert watches.pods(team) == names
            held = watches.informers.state.snapshot.pods_by_node["node-1"]
            assert {key.name for key in held if key.namespace == team} == names
            await watches.until(lambda: not watches.problems())  # the API server may reject its first watch with 429
    finally:
        cluster.api.request("DELETE", f"{pods_of(team)}?gracePeriodSeconds=0")


async def test_created_changed_and_deleted_objects_are_stored(cluster: Sandbox, team: str) -> None:
    async with running_watches(cluster.kubeconfig) as watches:
        key, path = ObjectKey(team, "web"), f"{pods_of(team)}/web"
        await request(cluster, "POST", pods_of(team), pod("web"))
        await watches.until(lambda: watches.pods(team) == {"web"})
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await request(cluster, "PATCH", f"{path}/status", ready)
        await watches.until(lambda: watches.informers.state.snapshot.pods[key].ready)
        await request(cluster, "DELETE", f"{path}?gracePeriodSeconds=0")
        await watches.until(lambda: not watches.pods(team))


def test_objects_of_every_watched_kind_are_stored(cluster: Sandbox, team: str) -> None:
    """Each object has values that show that it was decoded."""
    node = {
        "metadata": {"name": team, "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]},
    }
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": "40%", "selector": {"matchLabels": {"app": "web"}}}}
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    volume = {
        "metadata": {"name": team},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "hostPath": {"path": "/data"},
        },
    }
    objects: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/api/v1/nodes", node),
        (f"/apis/policy/v1/namespaces/{team}/poddisruptionbudgets", budget),
        (f"/api/v1/namespaces/{team}/services", service),
        (f"/api/v1/namespaces/{team}/persistentvolumeclaims", claim),
        ("/api/v1/persistentvolumes", volume),
        ("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": team}, "provisioner": "example.com/disk"}),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            {
                "metadata": {"name": team},
                "spec": {"drivers": [{"name": "disk", "nodeID": "1", "topologyKeys": [], "allocatable": {"count": 5}}]},
            },
        ),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": team}, "value": 7}),
        (f"/apis/respread.dev/v1alpha1/namespaces/{team}/rebalancepolicies", {**_policy("RebalancePolicy", "web")}),
        ("/apis/respread.dev/v1alpha1/clusterrebalancepolicies", {**_policy("ClusterRebalancePolicy", team)}),
    )

    def read(watches: Watches) -> dict[str, object]:
        """Return the decoded values of each object; empty while one of them is missing."""
        snapshot, policies = watches.informers.state.snapshot, watches.informers.policies.policies
        try:
            return {
                "namespaces": snapshot.namespaces[team].name,
                "nodes": [taint.key for taint in snapshot.nodes[team].taints],
                "poddisruptionbudgets": snapshot.disruption_budgets[team]["web"].min_available,
                "services": dict(snapshot.services[team]["web"].selector),
                "persistentvolumeclaims": snapshot.persistent_volume_claims[ObjectKey(team, "data")].access_modes,
                "persistentvolumes": snapshot.persistent_volumes[team].storage_class_name,
                "storageclasses": snapshot.storage_classes[team].provisioner,
                "csinodes": dict(snapshot.csi_nodes[team].volume_limits),
                "priorityclasses": watches.informers.priority_classes.by_name[team],
                "rebalancepolicies": policies[f"{team}/web"].spec.mode,
                "clusterrebalancepolicies": policies[team].spec.mode,
            }
        except KeyError:
            return {}

    expected = {
        "namespaces": team,
        "nodes": ["k"],
        "poddisruptionbudgets": "40%",
        "services": {"app": "web"},
        "persistentvolumeclaims": ("ReadWriteOnce",),
        "persistentvolumes": "fast",
        "storageclasses": "example.com/disk",
        "csinodes": {"disk": 5},
        "priorityclasses": 7,
        "rebalancepolicies": "Enforce",
        "clusterrebalancepolicies": "Enforce",
    }

    async def scenario() -> None:
        async with running_watches(cluster.kubeconfig) as watches:
            for path, body in objects:
                await request(cluster, "POST", path, body)
            await watches.until(lambda: bool(read(watches)))
            assert read(watches) == expected
        async with running_watches(cluster.kubeconfig) as watches:  # lists are decoded like events
            assert read(watches) == expected

    try:
        asyncio.run(scenario())
    finally:
        for path, body in objects:
            cluster.api.request("DELETE", f"{path}/{body['metadata']['name']}")


async def test_a_finished_pod_is_removed(cluster: Sandbox, team: str) -> None:
    async with running_watches(cluster.kubeconfig) as watches:
        for name in ("web", "job"):
            await request(cluster, "POST", pods_of(team), pod(name))
        await watches.until(lambda: watches.pods(team) == {"web", "job"})
        await request(cluster, "PATCH", f"{pods_of(team)}/job/status", {"status": {"phase": "Succeeded"}})
        await watches.until(lambda: watches.pods(team) == {"web"})
    async with running_watches(cluster.kubeconfig) as watches:
        assert watches.pods(team) == {"web"}


async def test_changed_policies_wake_the_loop_and_their_statuses_do_not(cluster: Sandbox, team: str) -> None:
    path = f"/apis/respread.dev/v1alpha1/namespaces/{team}/rebalancepolicies"
    name = f"{team}/web"

    async def policies_changed(watches: Watches) -> None:
        while "rebalancepolicies" not in await watches.informers.changes.wait():
            pass

    async with running_watches(cluster.kubeconfig) as watches:
        policies = watches.informers.policies
        await request(cluster, "POST", path, _policy("RebalancePolicy", "web"))
        await policies_changed(watches)  # the event of its creation may still be pending
        while name not in policies.policies:
            await policies_changed(watches)
        before = policies.policies[name]
        await request(cluster, "PATCH", f"{path}/web/status", {"status": {"observedGeneration": 1}})
        await watches.until(lambda: policies.statuses[name].observed_generation == 1)
        assert policies.policies[name] is before
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(policies_changed(watches), 0.05)
        await request(cluster, "DELETE", f"{path}/web")
        await watches.until(lambda: name not in policies.policies)


async def test_nothing_is_written_to_watched_objects(cluster: Sandbox, team: str) -> None:
    """Kopf adds no finalizer, annotation or status, so an uninstalled operator leaves nothing behind."""
    async with running_watches(cluster.kubeconfig) as watches:
        created = await request(cluster, "POST", pods_of(team), pod("web"))
        await request(
            cluster,
            "POST",
            f"/apis/respread.dev/v1alpha1/namespaces/{team}/rebalancepolicies",
            _policy("RebalancePolicy", "web"),
        )
        await watches.until(
            lambda: watches.pods(team) == {"web"} and f"{team}/web" in watches.informers.policies.policies
        )
        await asyncio.sleep(0.3)
        now = await request(cluster, "GET", f"{pods_of(team)}/web")
        assert now["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
        policy = await request(cluster, "GET", f"/apis/respread.dev/v1alpha1/namespaces/{team}/rebalancepolicies/web")
        assert "finalizers" not in policy["metadata"]
        assert not any("kopf" in name for name in policy["metadata"].get("annotations", {}))


def _policy(kind: PolicyKind, name: str) -> dict[str, Any]:
    return policy_manifest(name, {"mode": "Enforce"}, kind)


# -- failures ------------------------------------------------------------------------------------------------------


async def test_a_malformed_object_does_not_affect_the_others(
    cluster: Sandbox, team: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An API server of a later version may store such an object, here with an unknown value of whenUnsatisfiable.

    Its readable fields are kept, because it uses room and may belong to spread groups.
    """
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Negotiate"}
    strange = pod("strange", topologySpreadConstraints=[constraint])
    strange["metadata"] |= {"namespace": team, "uid": "3f2b1e9a-0000-4000-8000-000000000001"}
    fault = f"pods {team}/strange: spec.topologySpreadConstraints"
    etcd = Etcd(cluster)
    async with running_watches(cluster.kubeconfig) as watches:
        await etcd.put(f"/registry/pods/{team}/strange", strange)
        await request(cluster, "POST", pods_of(team), pod("web"))
        await watches.until(lambda: watches.pods(team) == {"web", "strange"})
        await watches.until(lambda: bool(watches.informers.by_kind[PODS].undecodable))
    async with running_watches(cluster.kubeconfig) as watches:
        assert watches.pods(team) == {"web", "strange"}
        assert list(watches.informers.by_kind[PODS].undecodable) == [ObjectKey(team, "strange")]
        await request(cluster, "DELETE", f"{pods_of(team)}/strange?gracePeriodSeconds=0")
        await watches.until(lambda: not watches.informers.by_kind[PODS].undecodable)
    assert fault in caplog.text
    assert "Negotiate" in caplog.text


async def test_an_object_deleted_during_an_outage_is_removed_by_the_next_list(cluster: Sandbox, team: str) -> None:
    for name in ("web", "gone"):
        await request(cluster, "POST", pods_of(team), pod(name))
    async with running_watches(cluster.kubeconfig) as watches:
        assert watches.pods(team) == {"web", "gone"}
        cluster.stop_component("kube-apiserver")
        etcd = Etcd(cluster)
        await etcd.delete(f"/registry/pods/{team}/gone")
        await etcd.compact()
        await asyncio.to_thread(cluster.start_component, "kube-apiserver")
        await watches.until(lambda: watches.pods(team) == {"web"})
        assert watches.relists("pods") >= 1
        await request(cluster, "POST", pods_of(team), pod("new"))
        await watches.until(lambda: watches.pods(team) == {"web", "new"})


async def test_an_aggregated_api_that_is_down_does_not_concern_the_watches(cluster: Sandbox, team: str) -> None:
    """As metrics.k8s.io without a running metrics-server: discovery of its group is answered with 503."""
    services, name = "/apis/apiregistration.k8s.io/v1/apiservices", "v1beta1.metrics.k8s.io"
    spec = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "service": {"name": "metrics-server", "namespace": team},
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
    }
    cluster.api.request("POST", services, {"metadata": {"name": name}, "spec": spec})
    try:
        wait_until(lambda: not _is_missing(cluster, "/apis/metrics.k8s.io/v1beta1"), "the API to be registered")
        with pytest.raises(ApiError, match="503"):
            await request(cluster, "GET", "/apis/metrics.k8s.io/v1beta1")
        async with running_watches(cluster.kubeconfig) as watches:
            assert not watches.problems()
    finally:
        cluster.api.request("DELETE", f"{services}/{name}")


def _is_missing(cluster: Sandbox, path: str) -> bool:
    try:
        cluster.api.get(path)
    except ApiError as error:
        return error.status == 404
    return False


@pytest.mark.long
async def test_an_object_that_is_missing_in_a_restored_backup_of_etcd_is_removed(
    start_sandbox: Callable[[SandboxOptions], Sandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup is older than the version to watch from, so the watch starts and delivers nothing."""
    for module in ("handlers.operator", "telemetry.health"):
        monkeypatch.setattr(f"respread.{module}.SILENT_SECONDS", 3)
    own_cluster = start_sandbox(API_SERVER_ONLY)
    own_cluster.apply(CRDS)
    # An API server that stops before it has established them does not do so when it is back.
    own_cluster.wait_for_definitions(*DEFINED)
    data, backup = own_cluster.files.directory / "etcd", tmp_path / "backup"

    def restart(prepare: Callable[[], object]) -> None:
        for component in ("kube-apiserver", "etcd"):
            own_cluster.stop_component(component)
        prepare()
        for component in ("etcd", "kube-apiserver"):
            own_cluster.start_component(component)

    def restore() -> None:
        shutil.rmtree(data)
        shutil.copytree(backup, data)

    await request(own_cluster, "POST", pods_of("default"), pod("kept"))
    await asyncio.to_thread(restart, lambda: shutil.copytree(data, backup))
    for number in range(50):
        await request(own_cluster, "POST", pods_of("default"), pod(f"lost-{number}"))
    async with running_watches(own_cluster.kubeconfig) as watches:
        assert len(watches.pods("default")) == 51
        await asyncio.to_thread(restart, restore)
        await watches.until(lambda: watches.pods("default") == {"kept"})
        await request(own_cluster, "POST", pods_of("default"), pod("new"))
        await watches.until(lambda: watches.pods("default") == {"kept", "new"})


async def test_the_operator_waits_for_a_restarted_api_server(cluster: Sandbox, team: str) -> None:
    async with running_watches(cluster.kubeconfig) as watches:
        cluster.stop_component("kube-apiserver")
        await asyncio.sleep(3)  # long enough for several attempts
        await asyncio.to_thread(cluster.start_component, "kube-apiserver")
        await request(cluster, "POST", pods_of(team), pod("web"))
        await watches.until(lambda: watches.pods(team) == {"web"})
        await watches.until(lambda: not watches.problems())  # the API server may still answer 429 for other kinds


async def test_a_list_with_an_expired_continue_token_is_started_again(own_cluster: Sandbox) -> None:
    """Kopf would end the process on the 410, which this API server sends because it caches no old pages."""
    for name in ("api", "db", "web"):
        await request(own_cluster, "POST", pods_of("default"), pod(name))
    watches = Watches(own_cluster.kubeconfig)
    access = watches.load()

    async def page(session: aiohttp.ClientSession, rest: str) -> dict[str, Any]:
        query = f"?limit=1&continue={rest}" if rest else "?limit=1"
        async with session.request("get", f"{access.endpoint.server}/api/v1/pods{query}") as response:
            body: dict[str, Any] = await response.json()
            return body

    async with open_session(access, {informer.kind.path: informer for informer in watches.informers.all}) as session:
        first = metadata = (await page(session, ""))["metadata"]
        await request(own_cluster, "DELETE", f"{pods_of('default')}/api?gracePeriodSeconds=0")
        await Etcd(own_cluster).compact()
        while rest := metadata.get("continue"):
            metadata = (await page(session, rest))["metadata"]
    assert metadata["resourceVersion"] != first["resourceVersion"]
    assert watches.pods("default") == {"db", "web"}


async def test_a_forbidden_kind_is_named_and_requested_until_it_is_allowed(cluster: Sandbox, team: str) -> None:
    rules = [
        {"apiGroups": ["", "storage.k8s.io", "scheduling.k8s.io", "respread.dev"], "resources": ["*"], "verbs": ["*"]}
    ]
    role = {"metadata": {"name": team}, "rules": rules}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": team}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": team}
    group = "/apis/rbac.authorization.k8s.io/v1"
    await request(cluster, "POST", f"/api/v1/namespaces/{team}/serviceaccounts", {"metadata": {"name": "reader"}})
    await request(cluster, "POST", f"{group}/clusterroles", role)
    binding = {"metadata": {"name": team}, "roleRef": reference, "subjects": [subject]}
    await request(cluster, "POST", f"{group}/clusterrolebindings", binding)
    kubeconfig = await asyncio.to_thread(cluster.kubeconfig_for_service_account, team, "reader")
    async with running_watches(kubeconfig, synced=False) as watches:
        await watches.until(lambda: list(watches.problems()) == ["poddisruptionbudgets"])
        await watches.until(lambda: "not allowed" in watches.problems()["poddisruptionbudgets"])
        problem = watches.problems()["poddisruptionbudgets"]
        assert problem.startswith("not allowed to list and watch poddisruptionbudgets.policy: grant both")
        assert f'User "system:serviceaccount:{team}:reader" cannot list resource "poddisruptionbudgets"' in problem
        granted = [*rules, {"apiGroups": ["policy"], "resources": ["*"], "verbs": ["*"]}]
        await request(cluster, "PUT", f"{group}/clusterroles/{team}", {**role, "rules": granted})
        await watches.synced()
        await watches.until(lambda: not watches.problems())  # the API server may reject its first watch with 429


async def test_an_expired_token_is_renewed(cluster: Sandbox, team: str) -> None:
    accounts = f"/api/v1/namespaces/{team}/serviceaccounts"
    binding = {
        "metadata": {"name": team},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": team}],
    }
    await request(cluster, "POST", accounts, {"metadata": {"name": "reader"}})
    await request(cluster, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    kubeconfig = await asyncio.to_thread(cluster.kubeconfig_for_service_account, team, "reader")
    async with running_watches(kubeconfig) as watches:
        await request(cluster, "DELETE", f"{accounts}/reader")  # its tokens become invalid
        await request(cluster, "POST", accounts, {"metadata": {"name": "reader"}})
        cluster.stop_component("kube-apiserver")
        await asyncio.to_thread(cluster.start_component, "kube-apiserver")
        await asyncio.sleep(2)  # repeated requests with the old token
        await asyncio.to_thread(cluster.kubeconfig_for_service_account, team, "reader")
        await request(cluster, "POST", pods_of(team), pod("web"))
        await watches.until(lambda: watches.pods(team) == {"web"})


async def test_the_crds_may_be_installed_later(own_cluster: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    async with running_watches(own_cluster.kubeconfig, synced=False) as watches:
        await watches.until(lambda: "not installed" in watches.problems()["clusterrebalancepolicies"])
        assert "kubectl apply -f crds/" in watches.problems()["rebalancepolicies"]
        await asyncio.to_thread(own_cluster.apply, CRDS)
        await watches.synced()
    assert "are not installed in version respread.dev/v1alpha1: kubectl apply -f crds/" in caplog.text


async def test_policies_are_removed_with_their_crd_and_return_with_it(own_cluster: Sandbox) -> None:
    own_cluster.apply(CRDS)
    wait_until_served(own_cluster, "respread.dev/v1alpha1", "clusterrebalancepolicies")
    path = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"
    await request(own_cluster, "POST", path, _policy("ClusterRebalancePolicy", "default"))
    async with running_watches(own_cluster.kubeconfig) as watches:
        assert set(watches.informers.policies.policies) == {"default"}
        await asyncio.to_thread(delete_definitions, own_cluster, *DEFINED)
        await watches.until(lambda: not watches.informers.policies.policies)
        await watches.until(lambda: "kubectl apply -f crds/" in watches.problems().get("clusterrebalancepolicies", ""))
        await asyncio.to_thread(own_cluster.apply, CRDS)
        await watches.until(lambda: not watches.problems())
        await request(own_cluster, "POST", path, _policy("ClusterRebalancePolicy", "again"))
        await watches.until(lambda: set(watches.informers.policies.policies) == {"again"})


# -- stopping ------------------------------------------------------------------------------------------------------

AT_ONCE_SECONDS = 10
"""The maximum time on a busy machine. Waiting for the end of a watch would take minutes."""


async def test_the_watches_stop_at_once(cluster: Sandbox) -> None:
    watches = Watches(cluster.kubeconfig)
    running = asyncio.create_task(watches.run())
    await watches.synced()
    start = time.monotonic()
    watches.stop.set()
    await running
    assert time.monotonic() - start < AT_ONCE_SECONDS


async def test_the_watches_stop_at_once_while_waiting_for_the_crds(own_cluster: Sandbox) -> None:
    watches = Watches(own_cluster.kubeconfig)
    running = asyncio.create_task(watches.run())
    await watches.until(lambda: "not installed" in watches.problems()["clusterrebalancepolicies"])
    start = time.monotonic()
    watches.stop.set()
    await running
    assert time.monotonic() - start < AT_ONCE_SECONDS


async def test_a_signal_is_reported_and_does_not_stop_the_watches(cluster: Sandbox, team: str) -> None:
    """Evictions must end before the watches."""
    async with running_watches(cluster.kubeconfig) as watches:
        os.kill(os.getpid(), signal.SIGTERM)
        await watches.until(watches.signalled.is_set)
        await request(cluster, "POST", pods_of(team), pod("web"))
        await watches.until(lambda: watches.pods(team) == {"web"})
