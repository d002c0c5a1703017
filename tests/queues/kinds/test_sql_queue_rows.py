"""Rows of SQL as slices."""

from __future__ import annotations

from warren.base.messages import WIRE, Origin, Publication
from warren.queues.kinds.sql_queue import CONTENT, rows_of, slices_of

LATE = Publication([b"a", b"bb"], expires_ms=5, published_ms=4, origin=Origin("x", "k", "u", WIRE))


def test_what_was_published_together_comes_out_as_one_slice() -> None:
    [slice_] = slices_of(rows_of(LATE, 7, True))
    run = slice_.run
    assert (slice_.first, slice_.end, slice_.size_bytes, slice_.contents) == (7, 9, 3, [b"a", b"bb"])
    assert (run.expires_ms, run.published_ms, run.origin, run.is_persistent) == (5, 4, LATE.origin, True)


def test_rows_that_are_not_alike_or_do_not_follow_are_slices_of_their_own() -> None:
    rows = rows_of(LATE, 0, True) + rows_of(LATE, 2, False) + rows_of(LATE, 9, False)
    assert [(each.first, each.end) for each in slices_of(rows)] == [(0, 2), (2, 4), (9, 11)]
    assert [(each.first, each.end) for each in slices_of(rows[:2], edge=1)] == [(0, 1), (1, 2)]


def test_rows_without_contents_are_slices_without() -> None:
    [slice_] = slices_of([row[:CONTENT] for row in rows_of(LATE, 0, True)])
    assert (slice_.contents, slice_.size_bytes) == (None, 3)
