"""The merge rule against a plain dict, and its laws."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.merge_model import Entry, columns_of, entries_of, histories, merged_by_hand
from warren.base.errors import Damage, Misuse, Refused
from warren.log.merge.merge import merge
from warren.log.settings import EntryKind

PUT, REMOVE = EntryKind.PUT, EntryKind.REMOVE
CLEAR, ADD, REMOVE_STORAGE = EntryKind.CLEAR_STORAGE, EntryKind.ADD_STORAGE, EntryKind.REMOVE_STORAGE


def merged(inputs: list[list[Entry]], is_bottom: bool) -> list[Entry]:
    return entries_of([merge([columns_of(entries) for entries in inputs], is_bottom)])


def remaining(*entries: Entry, is_bottom: bool = True) -> list[Entry]:
    """What is left of them, which must not depend on their order or on how they lie in inputs."""
    one_input = merged([list(entries)], is_bottom)
    assert one_input == merged([[entry] for entry in reversed(entries)], is_bottom)
    return one_input


@settings(deadline=None)
@given(histories(), st.booleans())
def test_merge_is_what_a_dict_would_hold(inputs: list[list[Entry]], is_bottom: bool) -> None:
    assert merged(inputs, is_bottom) == merged_by_hand((entry for part in inputs for entry in part), is_bottom)


@settings(deadline=None)
@given(histories(), st.booleans(), st.data())
def test_merging_in_pieces_gives_what_one_merge_gives(
    inputs: list[list[Entry]], is_bottom: bool, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(inputs)))
    pieces = [merge(list(map(columns_of, part)), is_bottom=False) for part in (inputs[:first], inputs[first:])]
    assert entries_of([merge(pieces[::-1], is_bottom)]) == merged(inputs, is_bottom)


def test_the_newest_version_wins_whatever_the_order() -> None:
    old, new, newer = (Entry(PUT, 1, b"k", version, b"%d.%d" % version) for version in ((1, 9), (2, 0), (2, 1)))
    assert remaining(old, new, newer) == [newer]


def test_versions_are_compared_by_major_first() -> None:
    assert remaining(Entry(PUT, 1, b"k", (2, 0), b"new"), Entry(PUT, 1, b"k", (1, 5), b"old"))[0].value == b"new"


def test_versions_use_all_64_bits() -> None:
    low, high = Entry(PUT, 1, b"k", (1, (1 << 63) - 1), b"low"), Entry(PUT, 1, b"k", (1, (1 << 64) - 1), b"high")
    assert remaining(low, high) == [high]


def test_a_tombstone_settles_only_at_the_bottom() -> None:
    put, remove = Entry(PUT, 1, b"k", (1, 1), b"x"), Entry(REMOVE, 1, b"k", (1, 2))
    assert remaining(put, remove, is_bottom=True) == []
    assert remaining(put, remove, is_bottom=False) == [remove]
    assert remaining(put._replace(version=(1, 3)), remove)[0].value == b"x"


@pytest.mark.parametrize("kind", [CLEAR, REMOVE_STORAGE])
def test_a_clear_drops_what_is_older_and_only_in_its_storage(kind: EntryKind) -> None:
    clear = Entry(kind, 1, b"", (2, 5))
    versions = {b"a": (2, 4), b"b": (2, 5), b"c": (3, 0)}
    older, same, newer = (Entry(PUT, 1, key, version, b"x") for key, version in versions.items())
    elsewhere = Entry(PUT, 2, b"a", (1, 0), b"x")
    assert remaining(older, clear, same, newer, elsewhere) == [same, newer, elsewhere]
    assert remaining(older, clear, same, newer, elsewhere, is_bottom=False) == [clear, same, newer, elsewhere]


def test_a_clear_drops_an_older_tombstone_even_above_the_bottom() -> None:
    clear = Entry(CLEAR, 1, b"", (2, 0))
    assert remaining(Entry(REMOVE, 1, b"k", (1, 0)), clear, is_bottom=False) == [clear]


def test_a_clear_between_two_versions_drops_the_old_one_and_keeps_the_new_one() -> None:
    old, new = Entry(PUT, 1, b"k", (1, 0), b"old"), Entry(PUT, 1, b"k", (3, 0), b"new")
    assert remaining(old, Entry(CLEAR, 1, b"", (2, 0)), new) == [new]


def test_an_added_storage_stays_unless_it_is_removed_later() -> None:
    add, again = Entry(ADD, 1, b"", (1, 0)), Entry(ADD, 1, b"", (3, 0))
    assert remaining(add, again) == [again]
    assert remaining(add, Entry(CLEAR, 1, b"", (2, 0))) == [add]
    assert remaining(add, Entry(REMOVE_STORAGE, 1, b"", (2, 0))) == []
    assert remaining(again, Entry(REMOVE_STORAGE, 1, b"", (2, 0))) == [again]


def test_entries_about_a_storage_stand_before_its_keys_even_before_the_empty_one() -> None:
    entries = [Entry(kind, 5, b"", (4, kind)) for kind in (REMOVE_STORAGE, ADD)]
    entries += [Entry(PUT, 5, b"", (5, 0), b"x"), Entry(PUT, 4, b"z", (5, 1), b"y"), Entry(CLEAR, 5, b"", (4, 9))]
    found = remaining(*entries, is_bottom=False)
    assert [(entry.storage, entry.kind) for entry in found] == [(4, PUT), (5, CLEAR), (5, REMOVE_STORAGE), (5, PUT)]


def test_epochs_and_undo_numbers_stay_with_their_entries() -> None:
    entries = [Entry(PUT, 1, bytes([9 - n]), (n, n), b"v", epoch=70 + n, undo=(n << 40, n)) for n in range(9)]
    assert remaining(*entries) == entries[::-1]


def test_the_same_entry_read_twice_is_one_entry() -> None:
    entry = Entry(PUT, 1, b"k", (1, 1), b"v")
    assert remaining(entry, entry, entry) == [entry]


@pytest.mark.parametrize("other", [Entry(PUT, 1, b"k" * 40, (1, 1), b"w"), Entry(REMOVE, 1, b"k" * 40, (1, 1))])
def test_c_28_one_version_with_two_meanings_is_damage_and_names_it(other: Entry) -> None:
    """C-28: equal write versions require equal values, in whatever order they come."""
    entry = Entry(PUT, 1, b"k" * 40, (1, 1), b"v")
    for inputs in ([[entry], [other]], [[other, entry]], [[Entry(PUT, 1, b"k" * 40, (0, 5), b"old"), entry], [other]]):
        with pytest.raises(Damage) as raised:
            merged(inputs, is_bottom=True)
        assert f"storage 1, key {b'k'.hex() * 32}…" in str(raised.value)
        assert "version 1.1" in str(raised.value)


def test_one_version_for_two_keys_is_no_conflict() -> None:
    entries = [Entry(ADD, 1, b"", (1, 1)), Entry(PUT, 1, b"a", (1, 1), b"v"), Entry(PUT, 1, b"b", (1, 1), b"w")]
    assert remaining(*entries) == entries


def test_records_are_refused_as_misuse() -> None:
    with pytest.raises(Misuse, match="record"):
        merged([[Entry(PUT, 1, b"a", (1, 1)), Entry(EntryKind.RECORD, 1, b"", (1, 2))]], is_bottom=True)


def test_a_kind_of_the_future_is_refused() -> None:
    with pytest.raises(Refused, match="kind 9"):
        merged([[Entry(9, 1, b"a", (1, 1))]], is_bottom=False)


def test_a_storage_entry_with_a_key_is_damage() -> None:
    with pytest.raises(Damage, match="storage 3"):
        merged([[Entry(CLEAR, 3, b"k", (1, 1))]], is_bottom=False)


def test_nothing_merged_is_nothing() -> None:
    assert merged([], is_bottom=True) == merged([[]], is_bottom=False) == []
