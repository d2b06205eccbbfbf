"""An independent watch of the pods that counts evictions and violated budgets.

It connects directly to the API server, is independent of the operator, and counts at every event.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import requests

from respread_sandbox import ApiError, Sandbox
from tests.processes import wait_until

App = tuple[str, str]
"""A namespace, and the value of the label `app`."""


class Breach(NamedTuple):
    """A moment at which an app had fewer Ready pods than its budget requires."""

    app: App
    ready: int
    least: int


class PodWatcher:
    """Watches all pods while the context lasts."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._ready: dict[App, set[str]] = {}
        self._evicted: dict[str, App] = {}
        self._least: dict[App, int] = {}
        self._version = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-watcher")
        self.breaches: list[Breach] = []

    def __enter__(self) -> Self:
        self._list()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def guard(self, app: App, least: int) -> None:
        """Expect this number of Ready pods of an app from now on, at every moment."""
        self._least[app] = least

    def release(self, app: App) -> None:
        """Expect no number of Ready pods of an app any more."""
        self._least.pop(app, None)

    def ready(self, namespace: str, app: str) -> int:
        """Return how many pods of an app are Ready."""
        return len(self._ready.get((namespace, app), ()))

    def evicted(self) -> Counter[App]:
        """Return how many pods of each app were evicted, as far as the watch has come."""
        return Counter(self._evicted.values())

    def evicted_by_now(self) -> Counter[App]:
        """Return how many pods of each app were evicted before the newest change of a pod that still exists.

        The watch may be seconds behind the API server on a busy machine.
        """
        found = self._sandbox.api.get("/api/v1/pods")["items"]
        newest = max((int(pod["metadata"]["resourceVersion"]) for pod in found), default=0)
        wait_until(lambda: int(self._version) >= newest, "the watch of pods to come so far")
        return self.evicted()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                for event in self._events():
                    self._see(event["type"], event["object"])
            except (requests.RequestException, ValueError):
                time.sleep(0.1)  # the API server is not available, but its history will have the missed events

    def _events(self) -> Iterator[dict[str, Any]]:
        client = self._sandbox.api.client
        url = (
            f"{client.url}/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=2"
            f"&resourceVersion={self._version}"
        )
        with client.session.get(url, stream=True, timeout=5) as answer:
            if answer.status_code != requests.codes.ok:
                time.sleep(0.1)
                return
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    # A restarted API server has no history, but nothing happened while it was stopped.
                    self._list()
                    return
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield event

    def _list(self) -> None:
        while True:
            try:
                found = self._sandbox.api.get("/api/v1/pods")
                break
            except (ApiError, OSError):
                time.sleep(0.1)
        self._version = found["metadata"]["resourceVersion"]
        there = {pod["metadata"]["uid"] for pod in found["items"]}
        for ready in self._ready.values():
            ready.intersection_update(there)
        for pod in found["items"]:
            self._see("ADDED", pod)

    def _see(self, kind: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        app = (metadata["namespace"], metadata.get("labels", {}).get("app", ""))
        conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
        target = conditions.get("DisruptionTarget", {})
        if target.get("reason") == "EvictionByEvictionAPI" and target.get("status") == "True":
            self._evicted[metadata["uid"]] = app
        ready = (
            kind != "DELETED"
            and "deletionTimestamp" not in metadata
            and conditions.get("Ready", {}).get("status") == "True"
        )
        pods = self._ready.setdefault(app, set())
        before = len(pods)
        (pods.add if ready else pods.discard)(metadata["uid"])
        least = self._least.get(app)
        if least is not None and len(pods) < least and len(pods) < before:
            self.breaches.append(Breach(app, len(pods), least))
