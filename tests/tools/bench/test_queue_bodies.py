"""A benchmark of queues knows what must come out: anything else ends it."""

from __future__ import annotations

import pytest

from tools.bench.queue.bodies import LARGE_BYTES, SMALL_BYTES, BodyTally, bodies, check_bodies, pieces, tally
from warren.base.errors import Damage


@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_bodies_are_the_same_whenever_they_are_made_and_no_two_alike(size_bytes: int) -> None:
    made = bodies(0, 1200, size_bytes)
    assert {len(body) for body in made} == {size_bytes} and len(set(made)) == 1200
    assert bodies(700, 3, size_bytes) == made[700:703]
    assert sorted(made, key=bytes) == made, "their number stands first, so sorting brings back the order"


def test_pieces_are_all_of_them() -> None:
    assert [len(piece) for piece in pieces(25, 10)] == [10, 10, 5]
    assert [body for piece in pieces(25, 10, first=7) for body in piece] == bodies(7, 25)


def test_a_tally_does_not_depend_on_the_pieces() -> None:
    found = BodyTally()
    for piece in pieces(2500, 999):
        found.add(piece)
    found.check("queue", tally(2500))


def test_a_missing_body_a_doubled_one_a_wrong_one_and_one_out_of_turn_are_found() -> None:
    good = bodies(0, 10)
    check_bodies("queue", good)
    check_bodies("queue", good[4:], first=4)
    with pytest.raises(Damage, match="queue: 10 bodies should have come out, 9 did"):
        check_bodies("queue", good[:-1], count=10)
    with pytest.raises(Damage, match="10 bodies should have come out, 11 did"):
        check_bodies("queue", [*good, good[-1]], count=10)
    for wrong in ([*good[:-1], good[0]], [good[1], good[0], *good[2:]], [b"\1" + good[0][1:], *good[1:]]):
        with pytest.raises(Damage, match="queue: other bodies came out than were put"):
            check_bodies("queue", wrong, count=10)
