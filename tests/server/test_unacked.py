"""What a channel has not settled, against a plain dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.server.unacked import Unacked, UnackedRange, UnknownTag


def entries_of(unacked: Unacked[str]) -> dict[int, tuple[str, int]]:
    """Tag by tag: its queue, and the tag within the queue."""
    return spread(unacked.pieces())


def spread(pieces: list[UnackedRange[str]]) -> dict[int, tuple[str, int]]:
    return {piece.first + at: (piece.holder, piece.tag + at) for piece in pieces for at in range(piece.length)}


def test_what_was_delivered_together_is_one_piece() -> None:
    unacked: Unacked[str] = Unacked()
    unacked.add(1, 500, 93, "jobs")
    assert (len(unacked), unacked.take_to(500)) == (500, [UnackedRange(1, 500, 93, "jobs")])
    assert (len(unacked), unacked.pieces()) == (0, [])


def test_one_from_the_middle_splits_a_piece() -> None:
    unacked: Unacked[str] = Unacked()
    unacked.add(1, 5, 10, "jobs")
    taken: list[UnackedRange[str]] = []
    unacked.take([3], taken)
    assert taken == [UnackedRange(3, 1, 12, "jobs")]
    assert unacked.pieces() == [UnackedRange(1, 2, 10, "jobs"), UnackedRange(4, 2, 13, "jobs")]


def test_tags_that_follow_one_another_are_taken_together() -> None:
    unacked: Unacked[str] = Unacked()
    unacked.add(1, 3, 10, "a")
    unacked.add(4, 3, 70, "b")
    taken: list[UnackedRange[str]] = []
    unacked.take([2, 3, 4, 5], taken)
    assert taken == [UnackedRange(2, 2, 11, "a"), UnackedRange(4, 2, 70, "b")]


def test_zero_is_everything() -> None:
    unacked: Unacked[str] = Unacked()
    unacked.add(7, 2, 1, "a")
    assert unacked.take_to(0) == [UnackedRange(7, 2, 1, "a")]
    assert unacked.take_to(0) == []


@pytest.mark.parametrize("tag", [6, 9, 3])
def test_a_tag_that_is_not_there_is_refused_and_nothing_is_taken(tag: int) -> None:
    unacked: Unacked[str] = Unacked()
    unacked.add(1, 5, 10, "a")
    unacked.add(7, 2, 1, "b")
    unacked.take([3], [])
    with pytest.raises(UnknownTag, match=f"unknown delivery tag {tag}"):
        unacked.take_to(tag)
    assert len(unacked) == 6


def test_those_before_an_unknown_one_are_taken() -> None:
    unacked: Unacked[str] = Unacked()
    unacked.add(1, 5, 10, "a")
    taken: list[UnackedRange[str]] = []
    with pytest.raises(UnknownTag):
        unacked.take([1, 2, 9], taken)
    assert (spread(taken), len(unacked)) == ({1: ("a", 10), 2: ("a", 11)}, 3)


@given(st.data())
def test_it_is_a_dictionary_of_tags(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warren.server.unacked.BITS", data.draw(st.sampled_from([1, 3, 10])))
        compare_with_a_dictionary(data)


def compare_with_a_dictionary(data: st.DataObject) -> None:
    unacked: Unacked[str] = Unacked()
    model: dict[int, tuple[str, int]] = {}
    next_tag, next_own = 1, 1
    for _ in range(data.draw(st.integers(1, 40))):
        what = data.draw(st.sampled_from(["add", "to", "some", "all"]))
        if what == "add":
            length, holder = data.draw(st.integers(1, 6)), data.draw(st.sampled_from("ab"))
            unacked.add(next_tag, length, next_own, holder)
            model |= {next_tag + at: (holder, next_own + at) for at in range(length)}
            next_tag, next_own = next_tag + length, next_own + length + data.draw(st.integers(0, 2))
        elif what == "all":
            assert spread(unacked.take_all()) == model
            model = {}
        elif model and what == "to":
            tag = data.draw(st.sampled_from(sorted(model)))
            assert spread(unacked.take_to(tag)) == {each: value for each, value in model.items() if each <= tag}
            model = {each: value for each, value in model.items() if each > tag}
        elif model:
            tags = data.draw(st.lists(st.sampled_from(sorted(model)), min_size=1, unique=True))
            taken: list[UnackedRange[str]] = []
            unacked.take(tags, taken)
            assert spread(taken) == {each: model.pop(each) for each in tags}
        assert (entries_of(unacked), len(unacked)) == (model, len(model))
