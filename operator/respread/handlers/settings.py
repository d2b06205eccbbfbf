"""Configures Kopf so that it handles a large cluster and changes no object."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import kopf

from respread.handlers.health import SILENT_SECONDS
from respread.kube.retry import RetryDelays
from respread.stores.watched_kinds import PODS, UNFINISHED_PODS

_PAGE_OBJECTS: Final = 500
_WATCH_SECONDS: Final = 300


def make_settings() -> kopf.OperatorSettings:
    """Return the settings of the operator."""
    settings = kopf.OperatorSettings()
    settings.watching.chunk_size = _PAGE_OBJECTS
    settings.watching.field_selectors[PODS.group, PODS.version, PODS.resource] = UNFINISHED_PODS
    # A stream that breaks during the initial objects loses some without an error.
    settings.watching.initial_streaming = False
    settings.watching.server_timeout = _WATCH_SECONDS
    settings.watching.client_timeout = _WATCH_SECONDS + 30
    settings.watching.inactivity_timeout = SILENT_SECONDS
    settings.watching.connect_timeout = 10
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = RetryDelays()
    # The worker of each object that changed lives on for this long.
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 1
    settings.posting.enabled = False
    # Otherwise another operator's peering object would pause us.
    settings.peering.standalone = True
    # Only resources that exist at the start are watched, so the permission to list CustomResourceDefinitions is not
    # needed.
    settings.scanning.disabled = True
    # No handler of ours needs a finalizer, but Kopf removes any finalizer with this name, so it must be nobody else's.
    settings.persistence.finalizer = "respread.dev/never-set"
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    # Kopf would kill the whole process some time after its own end.
    settings.process.ultimate_exiting_timeout = None
    return settings


def quieten_kopf() -> None:
    """Keep Kopf from logging a line for each handled event. Errors are still logged."""
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Compares nothing: handlers of plain events need no diffs, for which Kopf would copy every object."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None) -> kopf.BodyEssence:
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        del body
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


class _NoProgress(kopf.ProgressStorage):
    """Stores nothing: handlers of plain events are never resumed."""

    def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
        del key, body
        return None

    def store(self, *, key: kopf.HandlerId, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    def purge(self, *, key: kopf.HandlerId, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is stored."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Touch nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
