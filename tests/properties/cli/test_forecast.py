"""Forecasts of scale-downs compared with a model of the ReplicaSet controller's ordering."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from respread_cli.report.scale_downs import Forecast, Ranking, WorkloadPods, foretell
from tests.properties.prevention.replica_set_model import ModelPod, Violation
from tests.properties.prevention.test_ranks import World, disturbed, order_under, ranked, replica_set_of, worlds
from tests.worlds import NOW


def violation(forecast: Forecast) -> Violation:
    """Return the forecast violations of the groups."""
    hard = soft = 0
    for group in forecast.groups:
        if group.key.when_unsatisfiable == "DoNotSchedule":
            hard += group.excess
        else:
            soft += group.excess
    return hard, soft


def workload_of(world: World, costs: dict[str, int]) -> WorkloadPods:
    replica_set = replica_set_of(world, costs)
    return WorkloadPods(
        name=replica_set.workload, pods=replica_set.pods, groups=replica_set.groups, replica_sets=(replica_set,)
    )


def holds(world: World, forecast: Forecast, order: list[ModelPod]) -> bool:
    """Return whether a forecast is the controller's behavior, as far as it claims to be certain."""
    surplus = len(forecast.deleted)
    gone = {each.name for each in order[:surplus]}
    left = [each.node for each in world.pods if each.name not in {pod.name for pod in forecast.deleted}]
    spread = violation(forecast) == world.model.violation(left)
    return spread and (not forecast.certain or {pod.name for pod in forecast.deleted} == gone)


@given(disturbed(), st.data())
def test_a_certain_forecast_is_what_the_controller_does(world: World, data: st.DataObject) -> None:
    everything = ranked(world)
    costs = {name: cost for name, cost in everything.items() if data.draw(st.booleans(), name)}
    replicas = data.draw(st.integers(0, len(world.pods)), "replicas")
    workload = workload_of(world, costs)
    held: dict[Ranking, dict[str, int]] = {"as it is": costs, "without costs": {}}
    for ranking, there in held.items():
        forecast = foretell(workload, replicas, NOW, ranking)
        assert len(forecast.deleted) == len(world.pods) - replicas
        assert holds(world, forecast, order_under(world, there))


@given(worlds(("topology.kubernetes.io/zone", "kubernetes.io/hostname")), st.data())
def test_with_costs_on_all_pods_the_forecast_is_certain_and_never_worse(world: World, data: st.DataObject) -> None:
    replicas = data.draw(st.integers(1, len(world.pods)), "replicas")
    with_costs = foretell(workload_of(world, {}), replicas, NOW, "with costs")
    assert with_costs.certain
    assert holds(world, with_costs, order_under(world, ranked(world)))


@given(worlds(("topology.kubernetes.io/zone",)), st.integers(1, 8))
def test_with_one_constraint_costs_are_never_worse_than_no_costs(world: World, replicas: int) -> None:
    workload = workload_of(world, {})
    with_costs = foretell(workload, replicas, NOW, "with costs")
    without = foretell(workload, replicas, NOW, "without costs")
    assert violation(with_costs) <= violation(without)
    assert with_costs.evictions <= without.evictions or violation(with_costs) < violation(without)
