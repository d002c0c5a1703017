"""What every index of the message store must do. Run over each implementation by test_index.py."""

from __future__ import annotations

from collections.abc import Callable

from warren.base.ids import Lsn
from warren.message_store.index import BodyMove, IndexEntry, LocationIndex

UNIT, OTHER = Lsn(7 << 32), Lsn((7 << 32) + 9)
HERE, THERE, AWAY = b"here", b"there, behind it", b"away"


class IndexSuite:
    def test_an_index_maps_a_unit_to_where_it_is(self, index: LocationIndex) -> None:
        """MS-11, MS-14: and returns its reference count."""
        index.insert(UNIT, IndexEntry(3, HERE))
        assert index.look_up(UNIT) == IndexEntry(3, HERE)
        assert index.look_up_many([OTHER, UNIT]) == [None, IndexEntry(3, HERE)]

    def test_references_are_counted_and_the_location_stays(self, index: LocationIndex) -> None:
        index.insert(UNIT, IndexEntry(1, HERE))
        assert [index.add_references(UNIT, by) for by in (2, -1, 0, -2)] == [3, 2, 2, 0]
        assert index.look_up(UNIT) == IndexEntry(0, HERE), "only the collector removes it"

    def test_what_is_not_there_is_neither_counted_nor_found(self, index: LocationIndex) -> None:
        """MS-20: the usual case."""
        assert index.look_up(UNIT) is None
        assert index.add_references(UNIT, 1) is None
        assert index.look_up(UNIT) is None

    def test_a_move_changes_the_location_and_leaves_the_count_alone(self, index: LocationIndex) -> None:
        """MS-17."""
        index.insert(UNIT, IndexEntry(4, HERE))
        assert index.move([BodyMove(UNIT, HERE, THERE)]) == [True]
        assert index.look_up(UNIT) == IndexEntry(4, THERE)
        assert index.add_references(UNIT, -1) == 3
        assert index.look_up(UNIT) == IndexEntry(3, THERE)

    def test_an_unknown_unit_has_one_reference_at_the_place_of_its_run_and_can_be_moved(
        self, index: LocationIndex
    ) -> None:
        assert index.move([BodyMove(UNIT, HERE, THERE)]) == [True]
        assert index.look_up(UNIT) == IndexEntry(1, THERE)
        assert index.move([BodyMove(UNIT, THERE, AWAY), BodyMove(OTHER, HERE, AWAY)]) == [True, True]
        assert index.look_up_many([UNIT, OTHER]) == [IndexEntry(1, AWAY), IndexEntry(1, AWAY)]

    def test_what_is_elsewhere_by_now_is_not_moved(self, index: LocationIndex) -> None:
        """MS-19."""
        index.insert(UNIT, IndexEntry(2, HERE))
        index.move([BodyMove(OTHER, HERE, THERE)])
        assert index.move([BodyMove(UNIT, AWAY, THERE), BodyMove(OTHER, HERE, AWAY)]) == [False, False]
        assert index.look_up_many([UNIT, OTHER]) == [IndexEntry(2, HERE), IndexEntry(1, THERE)]

    def test_only_what_is_still_as_it_was_seen_is_deleted(self, index: LocationIndex) -> None:
        """MS-17: compare and delete; a count that has changed meanwhile saves the entry, and so does a move."""
        index.insert(UNIT, IndexEntry(0, HERE))
        seen = index.look_up(UNIT)
        assert seen is not None
        index.add_references(UNIT, 1)
        assert index.delete_object([(UNIT, seen)]) == [False]
        index.add_references(UNIT, -1)
        index.move([BodyMove(UNIT, HERE, THERE)])
        assert index.delete_object([(UNIT, seen), (OTHER, seen)]) == [False, False]
        assert index.look_up(UNIT) == IndexEntry(0, THERE)
        assert index.delete_object([(UNIT, IndexEntry(0, THERE))]) == [True]
        assert index.look_up(UNIT) is None

    def test_a_moved_unit_with_one_reference_is_deleted_as_well(self, index: LocationIndex) -> None:
        index.move([BodyMove(UNIT, HERE, THERE)])
        assert index.delete_object([(UNIT, IndexEntry(1, HERE))]) == [False]
        assert index.delete_object([(UNIT, IndexEntry(1, THERE))]) == [True]
        assert index.look_up(UNIT) is None
        assert index.delete_object([]) == [] == index.move([])

    def test_counting_by_many_threads_loses_nothing(
        self, index: LocationIndex, together: Callable[[list[Callable[[], None]]], None]
    ) -> None:
        """MS-19: while the collector moves it about."""
        index.insert(UNIT, IndexEntry(0, HERE))

        def count() -> None:
            for _ in range(200):
                index.add_references(UNIT, 1)

        def move() -> None:
            for _ in range(20):
                assert index.move([BodyMove(UNIT, HERE, THERE)]) == [True]
                assert index.move([BodyMove(UNIT, THERE, HERE)]) == [True]

        together([count, count, count, move])
        assert index.look_up(UNIT) == IndexEntry(600, HERE)

    def test_facts_report_what_entries_cost(self, index: LocationIndex) -> None:
        assert index.facts() == {"entries": 0, "memory_bytes": 0}
        index.insert(UNIT, IndexEntry(2, HERE))
        facts = index.facts()
        assert facts["entries"] == 1 and facts["memory_bytes"] > 100
        index.delete_object([(UNIT, IndexEntry(2, HERE))])
        assert index.facts() == {"entries": 0, "memory_bytes": 0}
