"""The page size adapts to the objects, so that pages are small in bytes."""

from __future__ import annotations

from respread.kube.listing import FIRST_OBJECTS, MOST_BYTES, MOST_OBJECTS, SHRINK, WANTED_BYTES, PageSize


def test_the_page_size_grows_for_small_objects_and_shrinks_down_to_one_for_large_ones() -> None:
    size = PageSize()
    sizes = []
    for _ in range(5):
        sizes.append(size.objects)
        size.took(10_000)
    assert (sizes[0], sizes[-1], sizes) == (FIRST_OBJECTS, MOST_OBJECTS, sorted(sizes))
    for _ in range(20):
        size.took(WANTED_BYTES + 1)
    assert size.objects == 1
    assert not size.is_too_large(10 * MOST_BYTES), "one object is read, however large it is"


def test_a_page_size_that_was_too_large_is_not_used_again() -> None:
    size = PageSize()
    assert not size.is_too_large(MOST_BYTES)
    assert size.is_too_large(MOST_BYTES + 1)
    size.refused()
    refused = size.objects
    assert refused * 1.5 * (1 << 20) < MOST_BYTES
    for _ in range(10):
        size.took(10)
    assert size.objects == refused == FIRST_OBJECTS // SHRINK
    size.refused()
    size.refused()
    assert size.objects == 1
