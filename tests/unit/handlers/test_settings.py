"""Kopf is configured for large clusters, endless retries, and no writes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import cast

import kopf
import pytest

from respread.cluster.decode.decoder import KINDS
from respread.cluster.stores import watched_kinds
from respread.handlers.operator import make_settings, quieten_kopf


@pytest.fixture
def kopf_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("kopf.objects")
    level = logger.level
    yield logger
    logger.setLevel(level)


def test_lists_are_paginated_and_silent_watches_end() -> None:
    watching = make_settings().watching
    assert watching.chunk_size == 500
    assert not watching.initial_streaming
    assert watching.inactivity_timeout > 60  # bookmarks come every minute
    assert watching.client_timeout is not None
    assert watching.server_timeout is not None
    assert watching.client_timeout > watching.server_timeout


def test_only_pods_have_a_field_selector() -> None:
    selectors = make_settings().watching.field_selectors
    for kind in watched_kinds():
        resource = kopf.Resource(group=kind.group, version=kind.version, plural=kind.resource)
        expected = ["status.phase!=Succeeded,status.phase!=Failed"] if kind == KINDS["pods"] else []
        assert selectors.collect(resource) == expected


def test_pod_metrics_have_no_field_selector() -> None:
    resource = kopf.Resource(group="metrics.k8s.io", version="v1beta1", plural="pods")
    assert make_settings().watching.field_selectors.collect(resource) == []


def test_retries_never_stop_and_are_never_too_frequent() -> None:
    backoffs = cast("Iterable[float]", make_settings().networking.error_backoffs)
    delays = list(islice(backoffs, 1000))
    assert len(delays) == 1000
    assert min(delays) > 0.2
    assert max(delays) <= 30
    assert next(iter(backoffs)) <= 0.5  # each request starts with the shortest delay


def test_kopf_peering_and_the_scanning_of_kinds_are_off() -> None:
    settings = make_settings()
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled


def test_workers_are_unlimited_and_short_lived() -> None:
    queueing = make_settings().queueing
    assert queueing.worker_limit is None
    assert queueing.idle_timeout <= 0.2


def test_kopf_writes_nothing_to_objects() -> None:
    persistence = make_settings().persistence
    assert persistence.finalizer.startswith("respread.dev/")
    body = kopf.Body({"metadata": {"name": "web", "annotations": {"a": "b"}}, "spec": {"x": 1}})
    assert persistence.diffbase_storage.build(body=body) == {}
    assert persistence.diffbase_storage.fetch(body=body) is None
    patch = kopf.Patch(body=body)
    persistence.diffbase_storage.store(body=body, patch=patch, essence=kopf.BodyEssence())
    persistence.progress_storage.touch(body=body, patch=patch, value="now")
    assert not patch


def test_handled_events_are_not_logged_but_failures_are(kopf_logger: logging.Logger) -> None:
    quieten_kopf()
    assert not kopf_logger.isEnabledFor(logging.INFO)
    assert kopf_logger.isEnabledFor(logging.ERROR)
