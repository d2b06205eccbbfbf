"""What is kept from round to round is made again only if it was made of other objects."""

from __future__ import annotations

from respread.cluster.incremental import Incremental


def test_a_value_is_kept_while_it_is_made_of_the_same_objects_and_every_round_asks_for_it() -> None:
    kept: Incremental[str, object] = Incremental()
    basis = [1]
    first = kept.of("a", (basis,), object)
    assert kept.of("a", (basis,), object) is first
    kept.begin()
    assert kept.of("a", (basis,), object) is first
    assert kept.of("a", ([1],), object) is not first, "an equal object is another one"
    again = kept.of("a", (basis,), object)
    assert again is not first
    assert kept.of("b", (basis,), object) is not again
    kept.begin()
    kept.begin()
    assert kept.of("a", (basis,), object) is not again, "a round had no use for it"
