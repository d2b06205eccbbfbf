"""Lists all objects of a kind from the API server, page by page, because a watch may be behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from respread.api.json_documents import decoded
from respread.cluster.decode.decoder import Kind
from respread.kube.requests import TIMEOUT_SECONDS, NoResponseError, Requests, Response, TooLargeError

FIRST_OBJECTS: Final = 100
MOST_OBJECTS: Final = 500
WANTED_BYTES: Final = 8 << 20
MOST_BYTES: Final = 32 << 20
"""For a page with more than one object."""
SHRINK: Final = 8
"""By which factor a page is made smaller that was too large."""


class PageSize:
    """How many objects to request for the next page of one kind.

    The API server counts objects, but one may have 20 bytes or 1.5 MiB, depending on its author. So a list starts with
    few objects, asks for more while pages are small, and for fewer if they are not. A page that is far too large is not
    read, but requested again in parts.
    """

    def __init__(self) -> None:
        self.objects = FIRST_OBJECTS
        """How many objects to request next."""
        self._most = MOST_OBJECTS

    def is_too_large(self, size_bytes: int) -> bool:
        """Return whether a page of this size is too large to be read."""
        return size_bytes > MOST_BYTES and self.objects > 1

    def refused(self) -> None:
        """Record that a page was too large, so that no page of these objects is that large again."""
        self.objects = self._most = max(1, self.objects // SHRINK)

    def was_slow(self) -> None:
        """Record that a page did not arrive in time. As large a one would not either, so none is requested again."""
        self.objects = self._most = max(1, self.objects // 2)

    def took(self, size_bytes: int) -> None:
        """Record the size of a page that was read."""
        if size_bytes > WANTED_BYTES:
            self.objects = max(1, self.objects // 2)
        elif size_bytes < WANTED_BYTES // 2:
            self.objects = min(self._most, self.objects * 2)


T = TypeVar("T")

JSON: Final = "application/json"
METADATA_ONLY: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
"""Without specs and statuses, which may be large."""


class ListError(Exception):
    """The objects could not be listed. The message names the kind and the cause."""


class RefusedError(Exception):
    """The API server refused a page."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.refusal)
        self.response = response


class ListPage(NamedTuple):
    """A part of a list."""

    objects: list[msgspec.Raw]
    """As JSON."""
    more: bool
    """Whether other pages follow."""


class ListMetadata(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    """`metadata` of a LIST."""

    resource_version: str = ""
    continue_: str = ""


class _Answer(msgspec.Struct):
    metadata: ListMetadata
    items: list[msgspec.Raw] | None
    """None for an empty metadata list, as the API server writes it."""


_read_answer: Final = msgspec.json.Decoder(_Answer).decode


async def list_objects(
    requests: Requests,
    kind: Kind,
    decode: Callable[[bytes | msgspec.Raw], T],
    *,
    page_objects: int,
    timeout_seconds: float = TIMEOUT_SECONDS,
    accept: str = JSON,
    namespace: str = "",
    most_objects: int | None = None,
) -> list[T]:
    """Return all objects of a kind from the API server.

    `page_objects` and `timeout_seconds` bound each page. `decode` raises `msgspec.DecodeError` if it can't decode an
    object. `accept` is `JSON` or `METADATA_ONLY`. By default, the objects of all namespaces are listed.

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
        raise ListError(f"{kind.resource} can't be listed: the answer is not a list of them: {error}") from error
    return found


async def pages(
    requests: Requests,
    path: str,
    names: Mapping[str, str],
    *,
    page_objects: int,
    timeout_seconds: float = TIMEOUT_SECONDS,
    accept: str = JSON,
    label_selector: str | None = None,
) -> AsyncIterator[ListPage]:
    """Yield a list page by page. A page of more than `MOST_BYTES` is not read, but requested again in parts.

    `names` stand for those in braces in the path. `page_objects` and `timeout_seconds` bound each page. `accept` is
    `JSON` or `METADATA_ONLY`.

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
