"""Lists all objects of a kind from the API server, page by page, because a watch may be behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from respread.api.nesting import decoded
from respread.cluster.decode.decoder import Kind
from respread.kube.api_status import status_of
from respread.kube.page_size import MOST_BYTES, SHRINK
from respread.kube.requests import NoResponseError, Requests, Response, TooLargeError

T = TypeVar("T")

JSON: Final = "application/json"
METADATA_ONLY: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
"""Without specs and statuses, which may be large."""


class ListError(Exception):
    """The objects could not be listed. The message names the kind and the cause."""


class RefusedError(Exception):
    """The API server refused a page."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"{response.status_code}, {status_of(response.body).message}")
        self.response = response


class ListPage(NamedTuple):
    """A part of a list."""

    objects: list[msgspec.Raw]
    """As JSON."""
    more: bool
    """Whether other pages follow."""


class _Metadata(msgspec.Struct, rename={"continue_": "continue"}):
    continue_: str = ""


class _Answer(msgspec.Struct):
    metadata: _Metadata
    items: list[msgspec.Raw] | None
    """None for an empty metadata list, as the API server writes it."""


_read_answer: Final = msgspec.json.Decoder(_Answer).decode


async def list_objects(
    requests: Requests,
    kind: Kind,
    decode: Callable[[bytes | msgspec.Raw], T],
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
    try:
        async for page in pages(
            requests, path, names, page_objects=page_objects, timeout_seconds=timeout_seconds, accept=accept
        ):
            found.extend(decoded(decode, each) for each in page.objects)
            if page.more and most_objects is not None and len(found) >= most_objects:
                raise ListError(f"{kind.resource} can't be listed: there are more than {most_objects} in {namespace}")
    except RefusedError as error:
        raise ListError(f"{kind.resource} can't be listed: {error}") from None
    except NoResponseError as error:
        raise ListError(f"{kind.resource} can't be listed: {error.message}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ListError(f"{kind.resource} can't be listed: the answer is no list of them: {error}") from error
    return found


async def pages(
    requests: Requests,
    path: str,
    names: Mapping[str, str],
    *,
    page_objects: int,
    timeout_seconds: float,
    accept: str = JSON,
    label_selector: str | None = None,
) -> AsyncIterator[ListPage]:
    """Yield a list page by page. A page of more than `MOST_BYTES` is not read, but requested again in parts.

    Args:
        requests: sends requests.
        path: of the list, with names in braces.
        names: what stands for them.
        page_objects: the most objects per page.
        timeout_seconds: the limit for each page.
        accept: the requested form, `JSON` or `METADATA_ONLY`.
        label_selector: the objects to list; None for all.

    Raises:
        NoResponseError: there was no answer.
        RefusedError: there was a refusal.
        msgspec.DecodeError: the answer was not a list; so does `UnicodeDecodeError`.
    """
    query = {"limit": str(page_objects)} | ({} if label_selector is None else {"labelSelector": label_selector})
    while True:
        try:
            response = await requests.send(
                "GET",
                path,
                names,
                query=query,
                accept=accept,
                timeout_seconds=timeout_seconds,
                most_bytes=MOST_BYTES if page_objects > 1 else None,
            )
        except TooLargeError:
            page_objects = max(1, page_objects // SHRINK)
            query["limit"] = str(page_objects)
            continue
        if not response.succeeded:
            raise RefusedError(response)
        answer = decoded(_read_answer, response.body)
        continue_ = answer.metadata.continue_
        yield ListPage(answer.items or [], more=bool(continue_))
        if not continue_:
            return
        query["continue"] = continue_
