"""An API server in memory, for loads that a real one can't produce beside an operator on two cores.

It serves lists in pages and watches, and accepts the writes of an operator: Leases, statuses, Events and evictions. It
validates nothing, authorizes every request, and answers at once, so that the measured time is the operator's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import yaml
from aiohttp import web

from respread.cluster.stores import RECORDS, watched_kinds
from respread_cli.report.target import parse_selector

Json: TypeAlias = dict[str, Any]
_Key: TypeAlias = tuple[str, str]
"""A namespace and a name."""

BOOKMARK_SECONDS: Final = 20.0
EVENTS_KEPT: Final = 10_000
"""The maximum number of events between the start of a watch and the current state."""
_ONLY_READ: Final = (
    ("apps/v1", "deployments", "Deployment"),
    ("apps/v1", "replicasets", "ReplicaSet"),
    ("coordination.k8s.io/v1", "leases", "Lease"),
    ("v1", "limitranges", "LimitRange"),
    ("v1", "resourcequotas", "ResourceQuota"),
    ("events.k8s.io/v1", "events", "Event"),
)
"""The resources that are requested one by one, besides watched ones."""


class _Path(NamedTuple):
    """The subject of a request."""

    group_version: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, path: str) -> _Path:
        parts = path.strip("/").split("/")
        of_group = 2 if parts[0] == "api" else 3
        group_version, rest = "/".join(parts[1:of_group]), parts[of_group:]
        namespace = ""
        match rest:
            case ["namespaces", namespace, _, *_]:
                rest = rest[2:]
        resource, name, subresource = (*rest, "", "", "")[:3]
        return cls(group_version, resource, namespace, name, subresource)


class _Stored(NamedTuple):
    version: int
    body: bytes


class Collection:
    """The objects of one resource, and its watchers."""

    def __init__(self, group_version: str, resource: str, kind: str, *, namespaced: bool) -> None:
        self.group_version = group_version
        self.resource = resource
        self.kind = kind
        self.namespaced = namespaced
        self.objects: dict[_Key, _Stored] = {}
        self._in_order: list[_Key] | None = None
        self.labelled: defaultdict[tuple[str, str, str], dict[_Key, None]] = defaultdict(dict)
        """The objects with a label by namespace, key and value, with the labels that they had when they were added."""
        self.recent: deque[tuple[int, bytes]] = deque(maxlen=EVENTS_KEPT)
        self.watches: set[_Watch] = set()

    def in_order(self) -> list[_Key]:
        """Return the keys in the order of a list."""
        if self._in_order is None:
            self._in_order = sorted(self.objects)
        return self._in_order

    def forget_order(self) -> None:
        """Note that an object was added or deleted."""
        self._in_order = None

    def describe(self) -> Json:
        """Return the discovery document of the resource."""
        verbs = ["get", "list", "watch", "create", "update", "patch"]
        singular = self.kind.lower()
        return {
            "name": self.resource,
            "kind": self.kind,
            "singularName": singular,
            "namespaced": self.namespaced,
            "verbs": verbs,
        }


class _Watch:
    """The lines that wait for one client."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self._wakeup = asyncio.Event()

    def send(self, line: bytes) -> None:
        self._lines.append(line)
        self._wakeup.set()

    async def take(self) -> bytes:
        """Return the waiting lines; none if there are none for some time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BOOKMARK_SECONDS):
                if not self._lines:
                    await self._wakeup.wait()
        self._wakeup.clear()
        taken, self._lines = b"".join(self._lines), []
        return taken

    @property
    def waiting(self) -> int:
        """Return how many lines were not taken yet."""
        return len(self._lines)


class ApiServer:
    """The server, and the objects it serves.

    Belongs to one event loop.
    """

    def __init__(self, *, on_eviction: Callable[[str], None]) -> None:
        """Start without objects.

        Args:
            on_eviction: called with a pod's name when its eviction arrives; deletes the pod.
        """
        self.requests: list[tuple[float, str, str]] = []
        """The requests except watches, with their times (`time.monotonic`), method and path."""
        self._on_eviction = on_eviction
        self._version = 1_000
        self._collections: dict[tuple[str, str], Collection] = {}
        for kind in (*watched_kinds(), *RECORDS.values()):
            group_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
            self._add(Collection(group_version, kind.resource, kind.kind, namespaced=kind.namespaced))
        for group_version, resource, name in _ONLY_READ:
            self._add(Collection(group_version, resource, name, namespaced=True))

    def _add(self, collection: Collection) -> None:
        self._collections[collection.group_version, collection.resource] = collection

    # The objects

    def put(self, group_version: str, resource: str, document: Json) -> None:
        """Add or replace an object, and set its `resourceVersion`."""
        collection = self._collections[group_version, resource]
        metadata = document["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        body = msgspec.json.encode(document)
        added = key not in collection.objects
        collection.objects[key] = _Stored(self._version, body)
        if added:
            collection.forget_order()
        if added:
            for label in metadata.get("labels", {}).items():
                collection.labelled[key[0], *label][key] = None
        self._tell(collection, b"ADDED" if added else b"MODIFIED", body)

    def delete(self, group_version: str, resource: str, namespace: str, name: str) -> None:
        """Delete an object."""
        collection = self._collections[group_version, resource]
        document: Json = msgspec.json.decode(collection.objects.pop((namespace, name)).body)
        collection.forget_order()
        for label in document["metadata"].get("labels", {}).items():
            del collection.labelled[namespace, *label][namespace, name]
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self._tell(collection, b"DELETED", msgspec.json.encode(document))

    def unsent(self, resource: str) -> int:
        """Return how many events of a resource wait for a client that does not read them."""
        return sum(
            watch.waiting
            for collection in self._collections.values()
            if collection.resource == resource
            for watch in collection.watches
        )

    def _tell(self, collection: Collection, kind: bytes, body: bytes) -> None:
        line = b'{"type":"%b","object":%b}\n' % (kind, body)
        collection.recent.append((self._version, line))
        for watch in collection.watches:
            watch.send(line)

    # The server

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve, and yield the address."""
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if (found := self._discovery(request.path)) is not None:
            return _answer(found)
        path = _Path.of(request.path)
        collection = self._collections.get((path.group_version, path.resource))
        if collection is None:
            return _refusal(404, f"{request.path} is not served")
        if request.method == "GET" and request.query.get("watch"):
            return await self._watch(request, collection)
        self.requests.append((time.monotonic(), request.method, request.path))
        if request.method == "GET":
            return self._read(collection, path, request.query)
        body: Json = msgspec.json.decode(await request.read())
        if path.subresource == "eviction":
            return self._evict(path, body)
        return self._write(request.method, collection, path, body)

    def _read(self, collection: Collection, path: _Path, query: Mapping[str, str]) -> web.Response:
        if not path.name:
            return self._list(collection, path.namespace, query)
        stored = collection.objects.get((path.namespace, path.name))
        return _refusal(404, "not found") if stored is None else _encoded(stored.body)

    def _evict(self, path: _Path, body: Json) -> web.Response:
        stored = self._collections["v1", "pods"].objects.get((path.namespace, path.name))
        if stored is None:
            return _refusal(404, "not found")
        if not body.get("deleteOptions", {}).get("dryRun"):
            self._on_eviction(path.name)
        return _answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, status=201)

    def _write(self, method: str, collection: Collection, path: _Path, body: Json) -> web.Response:
        """Handle a POST, a PUT, or a PATCH with a merge patch that contains complete lists."""
        name = path.name or body["metadata"]["name"]
        stored = collection.objects.get((path.namespace, name))
        if method == "PATCH":
            body = _merged(msgspec.json.decode(stored.body) if stored else {}, body)
        elif stored is not None and method == "POST":
            return _refusal(409, "it exists already")
        elif stored is not None and body["metadata"].get("resourceVersion") not in (None, str(stored.version)):
            return _refusal(409, "it has changed meanwhile")
        body.setdefault("metadata", {}).update(
            {"name": name} | ({"namespace": path.namespace} if path.namespace else {})
        )
        body["metadata"].setdefault("uid", f"00000000-0000-4000-8000-{self._version:012x}")
        if collection.resource == "events":
            return _answer(body, status=201)  # no client reads it here
        self.put(collection.group_version, collection.resource, body)
        return _encoded(collection.objects[path.namespace, name].body, status=201 if method == "POST" else 200)

    def _list(self, collection: Collection, namespace: str, query: Mapping[str, str]) -> web.Response:
        if (selector := query.get("labelSelector")) is not None:
            (required,) = parse_selector(selector).requirements
            ordered = sorted(
                key for each in required.values for key in collection.labelled[namespace, required.key, each]
            )
        elif namespace:
            ordered = sorted(key for key in collection.objects if key[0] == namespace)
        else:
            ordered = collection.in_order()
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or len(ordered))
        metadata: Json = {"resourceVersion": str(self._version)}
        if end < len(ordered):
            metadata["continue"] = str(end)
        head = {"kind": f"{collection.kind}List", "apiVersion": collection.group_version, "metadata": metadata}
        items = b",".join(collection.objects[key].body for key in ordered[start:end])
        return _encoded(b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], items))

    async def _watch(self, request: web.Request, collection: Collection) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or self._version)
        if len(collection.recent) == EVENTS_KEPT and since < collection.recent[0][0]:
            return _refusal(410, "too old resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        watch = _Watch([line for version, line in collection.recent if version > since])
        collection.watches.add(watch)
        try:
            await response.prepare(request)
            while True:
                bookmark = {
                    "kind": collection.kind,
                    "apiVersion": collection.group_version,
                    "metadata": {"resourceVersion": str(self._version)},
                }
                lines = await watch.take()
                await response.write(lines or b'{"type":"BOOKMARK","object":%b}\n' % msgspec.json.encode(bookmark))
        finally:
            collection.watches.discard(watch)

    def _discovery(self, path: str) -> Json | None:
        versions = list(dict.fromkeys(each.group_version for each in self._collections.values()))
        if path == "/version":
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = [_group(each) for each in versions if each != "v1"]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        group_version = path.removeprefix("/apis/").removeprefix("/api/")
        if group_version not in versions:
            return None
        resources = [each.describe() for each in self._collections.values() if each.group_version == group_version]
        return {"kind": "APIResourceList", "groupVersion": group_version, "resources": resources}


def write_kubeconfig(file: Path, server: str) -> None:
    """Write a kubeconfig for a server without authentication."""
    named = {"cluster": "bench", "user": "bench", "namespace": "default"}
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "bench", "cluster": {"server": server}}],
                "users": [{"name": "bench", "user": {"token": "anybody"}}],
                "contexts": [{"name": "bench", "context": named}],
                "current-context": "bench",
            }
        ),
        encoding="utf-8",
    )


def _group(group_version: str) -> Json:
    name, _, version = group_version.partition("/")
    served = {"groupVersion": group_version, "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _merged(document: Json, patch: Json) -> Json:
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict) and isinstance(document.get(key), dict):
            document[key] = _merged(document[key], value)
        else:
            document[key] = value
    return document


def _answer(document: Json, *, status: int = 200) -> web.Response:
    return _encoded(msgspec.json.encode(document), status=status)


def _encoded(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _refusal(status: int, message: str) -> web.Response:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
    return _answer(document, status=status)
