"""Transient messages that memory had no room for."""

from __future__ import annotations

import numpy as np

from tests.queues.backing_stage import numbered
from tests.queues.plain_index import PlainTransientStore
from warren.base.ids import SequenceId
from warren.base.messages import Origin, Run, Slice, sizes_of
from warren.queues.subqueues import Transients

ORIGIN = Origin("exchange", "ключ", "user", 1)


def transient(first: int, contents: list[bytes]) -> Slice:
    run = Run(SequenceId(first), len(contents), sizes_of(contents), False, 9, 8, ORIGIN)
    return Slice(run, 0, len(contents), contents)


def test_slices_that_leave_together_are_one_unit() -> None:
    store = PlainTransientStore()
    transients = Transients(store)
    slices = [transient(10 * number, [b"%d" % number, b"xy" * number]) for number in range(5)]
    written = transients.write(slices)
    assert len(store.units) == 1
    assert [(each.first, each.end, each.contents) for each in written] == [(10 * n, 10 * n + 2, None) for n in range(5)]
    assert transients.read(written[3].run, 1, 2) == [b"xyxyxy"]
    assert transients.read(written[4].run, 0, 2) == [b"4", b"xy" * 4]


def test_a_unit_is_not_too_large() -> None:
    store = PlainTransientStore()
    Transients(store).write([transient(number, [b"x" * 200_000]) for number in range(5)])
    assert [len(unit) for unit in store.units.values()] == [2, 2, 1]
    Transients(store := PlainTransientStore()).write([transient(10_000 * n, [b""] * 10_000) for n in range(2)])
    assert len(store.units) == 2


def test_a_unit_goes_with_the_last_of_its_messages() -> None:
    store = PlainTransientStore()
    transients = Transients(store)
    first, second = transients.write([transient(0, numbered(0, 3)), transient(5, numbered(5, 6))])
    transients.release(Slice(first.run, 1, 3, None))
    transients.release(second)
    assert len(store.units) == 1
    transients.release(Slice(first.run, 0, 1, None))
    assert store.units == {}
    transients.release(transient(8, [b"never written"]))


def test_what_was_written_once_is_not_written_again() -> None:
    store = PlainTransientStore()
    transients = Transients(store)
    (paged,) = transients.write([transient(0, numbered(0, 3))])
    back = Slice(paged.run, 0, 3, numbered(0, 3))
    fresh = transient(7, [b"7"])
    again = transients.write([back, fresh])
    assert (again[0].run is paged.run, again[1].first, store.written) == (True, 7, 2)


def test_positions_go_to_disk_as_one_piece_and_come_back_as_they_were() -> None:
    store = PlainTransientStore()
    transients = Transients(store)
    written = transients.write([transient(0, [b"a", b"bb"]), transient(9, numbered(9, 12))])
    piece = transients.fold([written[0], Slice(written[1].run, 1, 3, None)])
    assert (piece.first, piece.end, piece.count) == (0, 12, 4)
    back = transients.unfold(piece)
    assert [(each.first, each.end, each.contents) for each in back] == [(0, 2, None), (10, 12, None)]
    run = back[0].run
    assert (run.is_persistent, run.expires_ms, run.published_ms, run.origin) == (False, 9, 8, ORIGIN)
    assert isinstance(run.sizes, np.ndarray) and run.sizes.tolist() == [1, 2]
    assert transients.read(back[1].run, 1, 3) == [b"0010", b"0011"]
    transients.forget(piece)
    assert len(store.units) == 1
    transients.fold(written)
    transients.clear()
    assert store.units == {}
