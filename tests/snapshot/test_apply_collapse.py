"""Collapsing is what applying one entry after another comes to, and no more than that."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.merge_model import Entry, columns_of, entries_of, histories, merged_by_hand
from warren.log.settings import EntryKind
from warren.snapshot.apply import collapsed

PUT, REMOVE = EntryKind.PUT, EntryKind.REMOVE
MESSAGES, OTHERS = 5, 6


def collapsed_rows(entries: Iterable[Entry], write_once: Iterable[int] = ()) -> list[Entry]:
    return entries_of(collapsed([columns_of([entry]) for entry in entries], set(write_once)))


def applied_by_hand(state: dict[tuple[int, bytes], bytes], entries: Iterable[Entry]) -> dict[tuple[int, bytes], bytes]:
    """A store that takes them one after another, in version order."""
    state = dict(state)
    for entry in sorted(entries, key=lambda entry: entry.version):
        if entry.kind == PUT:
            state[entry.storage, entry.key] = entry.value
        elif entry.kind == REMOVE:
            state.pop((entry.storage, entry.key), None)
        elif entry.kind in (EntryKind.CLEAR_STORAGE, EntryKind.REMOVE_STORAGE):
            state = {name: value for name, value in state.items() if name[0] != entry.storage}
    return state


@settings(deadline=None)
@given(histories())
def test_without_write_once_storages_it_is_the_merge_that_is_not_at_the_bottom(inputs: list[list[Entry]]) -> None:
    rows = entries_of(collapsed([columns_of(batch) for batch in inputs]))
    assert rows == merged_by_hand([entry for batch in inputs for entry in batch], is_bottom=False)


@settings(deadline=None)
@given(histories(), st.sets(st.sampled_from([0, 1, 2, (1 << 64) - 1])))
def test_with_write_once_storages_it_is_the_merge_of_what_did_not_come_and_go(
    inputs: list[list[Entry]], write_once: set[int]
) -> None:
    inputs = [[entry._replace(key=entry.key[:1]) for entry in batch] for batch in inputs]  # so that keys meet
    entries = [entry for batch in inputs for entry in batch]
    rows = entries_of(collapsed([columns_of(batch) for batch in inputs], write_once))
    assert rows == [e for e in merged_by_hand(entries, is_bottom=False) if not _came_and_went(e, entries, write_once)]


def _came_and_went(entry: Entry, entries: list[Entry], write_once: set[int]) -> bool:
    puts = [e for e in entries if (e.kind, e.storage, e.key) == (PUT, entry.storage, entry.key)]
    return entry.kind == REMOVE and entry.storage in write_once and bool(puts)


@st.composite
def lives_of_keys(draw: st.DrawFn) -> list[Entry]:
    """Messages are put once and perhaps removed, once, later; other keys live as they like."""
    entries: list[Entry] = []
    minors = iter(draw(st.permutations(range(60))))
    for number in range(draw(st.integers(0, 8))):
        low, high = sorted((next(minors), next(minors)))
        entries.append(Entry(PUT, MESSAGES, b"m%d" % number, (1, low), b"body"))
        if draw(st.booleans()):
            entries.append(Entry(REMOVE, MESSAGES, b"m%d" % number, (1, high)))
    for _ in range(draw(st.integers(0, 12))):
        kind, key = draw(st.sampled_from([PUT, REMOVE])), draw(st.sampled_from([b"a", b"b", b"c"]))
        entries.append(Entry(kind, OTHERS, key, (1, minor := next(minors)), b"%d" % minor if kind == PUT else b""))
    return sorted(entries, key=lambda entry: entry.version)


@settings(deadline=None)
@given(lives_of_keys(), st.lists(st.integers(0, 30), max_size=4))
def test_ranges_collapsed_one_after_another_give_the_state_of_applying_every_entry(
    entries: list[Entry], cuts: list[int]
) -> None:
    """The store below holds what earlier ranges left: also a message whose remove comes in a later range."""
    edges = [0, *sorted(cuts), len(entries)]
    state: dict[tuple[int, bytes], bytes] = {(OTHERS, b"a"): b"older"}
    expected = applied_by_hand(state, entries)
    for start, stop in pairwise(edges):
        state = applied_by_hand(state, collapsed_rows(entries[start:stop], [MESSAGES]))
    assert state == expected


def test_put_and_remove_cancel_for_write_once_keys_only() -> None:
    def life(storage: int) -> list[Entry]:
        return [Entry(PUT, storage, b"k", (1, 1), b"v"), Entry(REMOVE, storage, b"k", (1, 2))]

    assert collapsed_rows(life(MESSAGES) + life(OTHERS), [MESSAGES]) == [Entry(REMOVE, OTHERS, b"k", (1, 2))]
    assert collapsed([], [MESSAGES]) == []


def test_a_remove_without_its_put_stays_and_so_does_a_put_behind_a_remove() -> None:
    lone = Entry(REMOVE, MESSAGES, b"k", (1, 2))
    assert collapsed_rows([lone], [MESSAGES]) == [lone]
    later = Entry(PUT, MESSAGES, b"k", (1, 3), b"v")
    assert collapsed_rows([lone, later], [MESSAGES]) == [later]
    across = [Entry(PUT, MESSAGES, b"k", (1, 9), b"v"), Entry(REMOVE, MESSAGES, b"k", (2, 0))]
    assert collapsed_rows(across, [MESSAGES]) == []
