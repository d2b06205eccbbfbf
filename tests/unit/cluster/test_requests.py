"""Requests of pods: the sums of the scheduler, with its own examples."""

from __future__ import annotations

from immutables import Map

from respread.cluster.quantity import (
    ContainerRequests,
    ContainerResize,
    PodRequests,
    Resize,
    allocatable,
    is_schedulable_resource,
    parse_nano,
    requests_held,
    requests_of_spec,
)


def amounts(**quantities: str) -> dict[str, int]:
    return {name.replace("_", "-"): parse_nano(quantity) for name, quantity in quantities.items()}


def container(name: str = "app", **quantities: str) -> ContainerRequests:
    return ContainerRequests(name, amounts(**quantities))


def sidecar(name: str = "side", **quantities: str) -> ContainerRequests:
    return ContainerRequests(name, amounts(**quantities), restartable=True)


def test_requests_of_containers_are_added() -> None:
    pod = PodRequests(containers=[container(cpu="100m", memory="128Mi"), container(cpu="2", memory="1Gi")])
    assert requests_of_spec(pod) == Map(cpu=2100, memory=(128 + 1024) << 20)


def test_amounts_are_rounded_up_once_per_pod() -> None:
    pod = PodRequests(containers=[container(cpu="100u", memory="500m"), container(cpu="100u", memory="500m")])
    assert requests_of_spec(pod) == Map(cpu=1, memory=1)


def test_the_largest_init_container_counts_if_it_exceeds_the_containers() -> None:
    """The example of the scheduler's own comment: 2 and 2 CPU, then 2 + 1; 1 and 3 GB, then 1 + 1."""
    pod = PodRequests(
        containers=[container(cpu="2", memory="1G"), container(cpu="1", memory="1G")],
        init_containers=[container(cpu="2", memory="1G"), container(cpu="2", memory="3G")],
    )
    assert requests_of_spec(pod) == Map(cpu=3000, memory=3 * 10**9)


def test_a_sidecar_counts_beside_containers_and_later_init_containers() -> None:
    first_init, second_init = container(cpu="4"), container(cpu="3")
    pod = PodRequests(containers=[container(cpu="1")], init_containers=[first_init, sidecar(cpu="2"), second_init])
    assert requests_of_spec(pod) == Map(cpu=5000)

    pod = PodRequests(containers=[container(cpu="1")], init_containers=[first_init, second_init, sidecar(cpu="2")])
    assert requests_of_spec(pod) == Map(cpu=4000)


def test_pod_level_requests_replace_those_of_containers_for_supported_resources() -> None:
    pod = PodRequests(
        containers=[container(cpu="1", memory="1Gi", ephemeral_storage="1Gi")],
        pod_level=amounts(cpu="500m", ephemeral_storage="9Gi"),
    )
    assert requests_of_spec(pod) == Map({"cpu": 500, "memory": 1 << 30, "ephemeral-storage": 1 << 30})


def test_huge_pages_can_be_requested_at_pod_level() -> None:
    pod = PodRequests(containers=[container()], pod_level={"hugepages-2Mi": parse_nano("4Mi")})
    assert requests_of_spec(pod) == Map({"hugepages-2Mi": 4 << 20})


def test_overhead_is_added_to_all_requests() -> None:
    pod = PodRequests(
        containers=[container(cpu="1")],
        init_containers=[container(cpu="3")],
        pod_level=amounts(memory="1Gi"),
        overhead=amounts(cpu="250m", memory="64Mi"),
    )
    assert requests_of_spec(pod) == Map(cpu=3250, memory=(1024 + 64) << 20)


def test_only_resources_that_the_scheduler_counts_are_kept() -> None:
    assert all(
        map(
            is_schedulable_resource,
            [
                "cpu",
                "memory",
                "ephemeral-storage",
                "pods",
                "hugepages-1Gi",
                "attachable-volumes-aws-ebs",
                "nvidia.com/gpu",
                "kubernetes.io/batch-cpu",
            ],
        )
    )
    assert not any(map(is_schedulable_resource, ["storage", "requests.cpu", "requests.nvidia.com/gpu", "services"]))
    assert allocatable(amounts(cpu="3920m", storage="1Gi") | {"nvidia.com/gpu": parse_nano("2")}) == Map(
        {"cpu": 3920, "nvidia.com/gpu": 2}
    )


class TestInPlaceResize:
    POD = PodRequests(containers=[container("app", cpu="1", memory="1Gi"), container("log", cpu="100m")])

    def test_a_shrinking_container_counts_with_its_allocated_resources(self) -> None:
        resize = Resize(containers=[ContainerResize("app", amounts(cpu="2", memory="1Gi"), amounts(cpu="3"))])
        assert requests_held(self.POD, resize) == Map(cpu=3100, memory=1 << 30)

    def test_a_growing_container_counts_with_its_requests(self) -> None:
        resize = Resize(containers=[ContainerResize("app", amounts(cpu="500m"), amounts(cpu="500m"))])
        assert requests_held(self.POD, resize) == Map(cpu=1100, memory=1 << 30)

    def test_the_requests_of_an_infeasible_resize_do_not_count(self) -> None:
        in_force = ContainerResize("app", amounts(cpu="500m", memory="1Gi"), amounts(cpu="600m"))
        assert requests_held(self.POD, Resize(containers=[in_force], infeasible=True)) == Map(cpu=700, memory=1 << 30)

    def test_a_container_without_a_status_counts_with_its_spec(self) -> None:
        assert requests_held(self.POD, Resize(infeasible=True)) == Map(cpu=1100, memory=1 << 30)

    def test_a_resize_of_an_init_container_that_is_not_a_sidecar_is_ignored(self) -> None:
        pod = PodRequests(
            containers=[container(cpu="1")], init_containers=[sidecar("side", cpu="1"), container("init")]
        )
        resize = Resize(
            containers=[ContainerResize("side", amounts(cpu="2"), {}), ContainerResize("init", amounts(cpu="9"), {})]
        )
        assert requests_held(pod, resize) == Map(cpu=3000)

    def test_pod_level_resources_are_resized_together(self) -> None:
        pod = PodRequests(containers=[container(cpu="1")], pod_level=amounts(cpu="4"))
        resize = Resize(pod_level=ContainerResize("", amounts(cpu="5"), amounts(cpu="6")))
        assert requests_held(pod, resize) == Map(cpu=6000)
