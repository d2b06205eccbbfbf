"""Lists all objects of a kind from the API server, page by page, because a watch may be behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from respread.cluster.decode.decoder import Kind
from respread.kube.api_status import status_of
from respread.kube.requests import NoResponseError, Requests

T = TypeVar("T")

JSON: Final = "application/json"
METADATA_ONLY: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
"""Without specs and statuses, which may be large."""


class ListError(Exception):
    """The objects could not be listed. The message names the kind and the cause."""


class _Metadata(msgspec.Struct, rename={"continue_": "continue"}):
    continue_: str = ""


class _Page(msgspec.Struct):
    metadata: _Metadata
    items: list[msgspec.Raw] | None
    """None for an empty metadata list, as the API server writes it."""


async def list_objects(
    requests: Requests,
    kind: Kind,
    decode: Callable[[msgspec.Raw], T],
    *,
    page_objects: int,
    timeout_seconds: float,
    accept: str = JSON,
    namespace: str = "",
    most_objects: int | None = None,
) -> list[T]:
    """Return all objects of a kind from the API server.

    Args:
        requests: sends requests.
        kind: the kind.
        decode: decodes an object from JSON; raises `msgspec.DecodeError` if it can't.
        page_objects: the most objects per page.
        timeout_seconds: the limit for each page.
        accept: the requested form, `JSON` or `METADATA_ONLY`.
        namespace: of a namespaced kind; all namespaces by default.
        most_objects: the most objects to read.

    Raises:
        ListError: there was no answer or a refusal, the answer was not a list, or there are too many objects.
    """
    path, names = (kind.path, {}) if not namespace else (kind.path_in_namespace, {"namespace": namespace})
    found: list[T] = []
    query = {"limit": str(page_objects)}
    while True:
        try:
            response = await requests.send(
                "GET", path, names, query=query, accept=accept, timeout_seconds=timeout_seconds
            )
            if not response.succeeded:
                said = status_of(response.body).message
                raise ListError(f"{kind.resource} can't be listed: {response.status_code}, {said}")
            page = msgspec.json.decode(response.body, type=_Page)
            found.extend(map(decode, page.items or ()))
        except NoResponseError as error:
            raise ListError(f"{kind.resource} can't be listed: {error.message}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ListError(f"{kind.resource} can't be listed: the answer is no list of them: {error}") from error
        if not page.metadata.continue_:
            return found
        if most_objects is not None and len(found) >= most_objects:
            raise ListError(f"{kind.resource} can't be listed: there are more than {most_objects} in {namespace}")
        query["continue"] = page.metadata.continue_
