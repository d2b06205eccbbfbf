"""The memory for one object is bounded by the largest that an API server stores: the figure in docs/security.md."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tests.informer_parts import Parts, page

_MIB = 1 << 20
_LARGEST = 3 * _MIB // 2
"""The limit of etcd (`--max-request-bytes`) in its own encoding. JSON is somewhat longer."""
_KEPT_MIB = 16
"""The figure in docs/security.md."""

OF_THEIR_OWN = get_context("forkserver")
"""Makes processes that have imported this module and done nothing: how far Python's table of interned strings has to
grow depends on what was done before."""
OF_THEIR_OWN.set_forkserver_preload([__name__])


def many(of: Callable[[int], Any]) -> list[Any]:
    """Return as many items as fit."""
    return [of(number) for number in range(_LARGEST // len(json.dumps(of(10_000))))]


def mapping(of: Callable[[int], tuple[str, str]]) -> dict[str, str]:
    return dict(many(of))


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": {"nodeName": "a1", "containers": [{"name": "a"}], **fields}}


def required(*terms: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


SHAPES: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "labels": lambda: ("pods", {"metadata": {"labels": mapping(lambda n: (f"l{n}", ""))}}),
    "annotations": lambda: ("pods", {"metadata": {"annotations": mapping(lambda n: (f"respread.dev/a{n}", ""))}}),
    "tolerations": lambda: ("pods", spec(tolerations=many(lambda n: {"key": f"k{n}"}))),
    "nodeSelector": lambda: ("pods", spec(nodeSelector=mapping(lambda n: (f"l{n}", "")))),
    "anti-affinity": lambda: (
        "pods",
        spec(affinity={"podAntiAffinity": required(*many(lambda n: {"topologyKey": f"k{n}", "labelSelector": {}}))}),
    ),
    "values of a selector": lambda: (
        "pods",
        spec(
            affinity={
                "podAffinity": required(
                    {
                        "topologyKey": "zone",
                        "labelSelector": {
                            "matchExpressions": [{"key": "a", "operator": "In", "values": many(lambda n: f"v{n}")}]
                        },
                    }
                )
            }
        ),
    ),
    "resources": lambda: (
        "pods",
        spec(containers=[{"name": "a", "resources": {"requests": mapping(lambda n: (f"example.com/r{n}", "1"))}}]),
    ),
    "host ports": lambda: (
        "pods",
        spec(containers=[{"name": "a", "ports": many(lambda n: {"containerPort": 1, "hostPort": n % 65536 + 1})}]),
    ),
    "claims": lambda: (
        "pods",
        spec(volumes=many(lambda n: {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}})),
    ),
    "a Service's selector": lambda: ("services", {"spec": {"selector": mapping(lambda n: (f"l{n}", ""))}}),
    "a Service's labels": lambda: ("services", {"metadata": {"labels": mapping(lambda n: (f"l{n}", ""))}}),
    "a budget's pods": lambda: (
        "poddisruptionbudgets",
        {"status": {"disruptedPods": mapping(lambda n: (f"p{n}", "2026-11-22T03:00:00Z"))}},
    ),
    "a claim's labels": lambda: ("persistentvolumeclaims", {"metadata": {"labels": mapping(lambda n: (f"l{n}", ""))}}),
}


def kept_by(shape: str) -> int:
    """Return the bytes that the largest object of a shape keeps after decoding."""
    resource, body = SHAPES[shape]()
    parts = Parts()
    informer = parts.informer(resource)
    metadata = {"name": "a", "namespace": "shop", "uid": "a", "resourceVersion": "1"}
    document = page({**body, "metadata": {**metadata, **body.get("metadata", {})}})
    gc.collect()
    tracemalloc.start()
    try:
        informer.take_page(document)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert parts.informers.object_counts()[resource] == 1
    return kept


@pytest.mark.parametrize("shape", SHAPES)
def test_the_largest_object_keeps_at_most_the_documented_memory(shape: str) -> None:
    with ProcessPoolExecutor(1, mp_context=OF_THEIR_OWN) as own:
        kept = own.submit(kept_by, shape).result()
    print(f"{shape}: {kept / _MIB:.1f} MiB")  # noqa: T201 - the figure in docs/security.md is the largest of these
    assert kept < _KEPT_MIB * _MIB
