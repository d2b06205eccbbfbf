"""Requests of pods compared with the definition in KEP 753, in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from respread.cluster.quantity import ContainerRequests, PodRequests, requests_of_spec

NAMES = ("cpu", "memory", "example.com/gpu")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5 * 10**9), max_size=3)
CONTAINERS = st.builds(ContainerRequests, st.just("app"), AMOUNTS)
INIT_CONTAINERS = st.builds(ContainerRequests, st.just("init"), AMOUNTS, st.booleans())
PODS = st.builds(
    PodRequests,
    containers=st.lists(CONTAINERS, min_size=1, max_size=4),
    init_containers=st.lists(INIT_CONTAINERS, max_size=5),
    overhead=AMOUNTS,
)


def needed(pod: PodRequests, name: str) -> Fraction:
    """Return the maximum use at any moment of the pod's life, in whole units."""
    moments = []
    sidecars = Fraction(0)
    for init in pod.init_containers:
        own = Fraction(init.requests.get(name, 0), 10**9)
        moments.append(sidecars + own)
        if init.restartable:
            sidecars += own
    moments.append(sidecars + sum(Fraction(each.requests.get(name, 0), 10**9) for each in pod.containers))
    return max(moments) + Fraction(pod.overhead.get(name, 0), 10**9)


@given(PODS)
def test_the_requests_of_a_pod_are_the_maximum_of_its_use_over_time(pod: PodRequests) -> None:
    requests = requests_of_spec(pod)
    for name in NAMES:
        assert requests.get(name, 0) == math.ceil(needed(pod, name) * (1000 if name == "cpu" else 1))
