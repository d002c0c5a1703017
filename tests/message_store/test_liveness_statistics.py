from __future__ import annotations

from warren.base.ids import FileNumber, Lsn, QueueId, lsn_of
from warren.base.threads import SystemThreads
from warren.message_store.liveness import FileStatistics

THREE, FIVE, SIX = FileNumber(3), FileNumber(5), FileNumber(6)


def statistics_of(*files: FileNumber) -> FileStatistics:
    statistics = FileStatistics(SystemThreads().condition())
    statistics.begin(max(files))
    statistics.update(files)
    return statistics


def test_the_earliest_unit_in_use_is_that_of_the_first_file() -> None:
    """MR-11: an ordered map; the first is found at once, whatever is behind it."""
    statistics = statistics_of(THREE, FIVE, SIX)
    assert statistics.earliest() == lsn_of(THREE, 0), "it is not counted"
    for number in (SIX, FIVE, THREE):
        statistics.counted(number, 100, 60, lsn_of(number, 96))
    assert statistics.earliest() == lsn_of(THREE, 96)
    statistics.update([THREE, SIX])
    assert statistics.earliest() == lsn_of(THREE, 96)
    statistics.update([SIX])
    assert statistics.earliest() == lsn_of(SIX, 96)
    statistics.update([])
    assert statistics.earliest() is None


def test_half_is_not_more_than_half_and_nothing_counts_before_a_liveness_scan() -> None:
    statistics = statistics_of(THREE)
    assert not statistics.files()[THREE].is_half_garbage and statistics.files()[THREE].is_to_be_counted
    for live, is_fit in ((51, False), (50, False), (49, True), (0, True)):
        statistics.counted(THREE, 100, live, Lsn(1) if live else None)
        notes = statistics.files()[THREE]
        assert (notes.is_half_garbage, notes.is_empty, notes.is_to_be_counted) == (is_fit, live == 0, False)


def test_a_new_file_is_counted_only_if_something_in_it_was_noted_or_it_is_unknown() -> None:
    """A liveness scan reads the whole file: one in which all is alive need not be read to learn that."""
    statistics = statistics_of(THREE)
    assert statistics.files()[THREE].is_to_be_counted, "it was there before we were"
    statistics.update([THREE, FIVE])
    assert not statistics.files()[FIVE].is_to_be_counted
    statistics.note_dead(FIVE, 1)
    assert statistics.files()[FIVE].is_to_be_counted
    statistics.counted(FIVE, 100, 99, Lsn(1))
    statistics.count_again(SIX)
    statistics.update([THREE, FIVE, SIX])
    assert all(notes.is_to_be_counted for notes in statistics.files().values()), "also what was being written to then"
    statistics.update([THREE, FIVE, SIX, FileNumber(7)])
    assert not statistics.files()[FileNumber(7)].is_to_be_counted


def test_of_a_deleted_queue_its_own_files_are_noted_and_those_of_an_earlier_life_are_doubtful() -> None:
    ours, theirs = QueueId(1), QueueId(2)
    statistics = statistics_of(THREE)
    statistics.counted(THREE, 100, 100, Lsn(1))
    statistics.wrote(THREE, [theirs], 10)
    statistics.wrote(FIVE, [ours], 60)
    statistics.wrote(SIX, [ours, theirs], 40)
    statistics.update([THREE, FIVE])
    statistics.queue_deleted(ours)
    statistics.update([THREE, FIVE, SIX])
    old, own, shared = statistics.files().values()
    assert old.is_to_be_counted, "it may have something of an earlier life"
    assert (own.is_abandoned, own.noted_bytes, own.is_to_be_counted) == (True, 60, False)
    assert (shared.is_abandoned, shared.noted_bytes, shared.is_to_be_counted) == (False, 40, True)
    statistics.queue_deleted(theirs)
    assert statistics.files()[SIX].is_abandoned and not statistics.files()[THREE].is_abandoned
    statistics.wrote(SIX, [ours], 1)
    assert not statistics.files()[SIX].is_abandoned


def test_a_file_that_has_gone_is_not_taken_for_one_that_will_come() -> None:
    statistics = statistics_of(FIVE)
    statistics.update([])
    assert not statistics.knows(FIVE) and statistics.knows(SIX)


def test_notes_request_a_liveness_scan_when_it_would_change_something() -> None:
    statistics = statistics_of(THREE)
    statistics.counted(THREE, 100, 90, Lsn(1))
    for noted, is_due in ((30, False), (10, False), (1, True)):
        statistics.note_dead(THREE, noted)
        assert statistics.files()[THREE].is_to_be_counted is is_due
    statistics.counted(THREE, 100, 49, Lsn(1))
    statistics.note_dead(THREE, 48)
    assert not statistics.files()[THREE].is_to_be_counted, "it is fit already"
    statistics.note_dead(THREE, 1)
    assert statistics.files()[THREE].is_to_be_counted, "it may be empty now"


def test_what_is_noted_of_a_file_that_is_still_written_to_is_kept_until_it_is_sealed() -> None:
    statistics = statistics_of(THREE)
    statistics.note_dead(FIVE, 40)
    assert statistics.knows(FIVE) and statistics.knows(THREE) and not statistics.knows(FileNumber(2))
    statistics.update([THREE, FIVE])
    statistics.counted(FIVE, 70, 60, Lsn(1))
    assert statistics.files()[FIVE].noted_bytes == 30, "of the forty a census has found ten"
    statistics.note_dead(SIX, 9)
    statistics.update([FIVE, SIX])
    assert statistics.files()[SIX].noted_bytes == 9


def test_a_note_that_a_liveness_scan_has_not_found_stays_for_the_next_and_is_then_dropped() -> None:
    """A release is noted before it is durable, and a scan sees only what is durable."""
    statistics = statistics_of(THREE)
    statistics.note_dead(THREE, 100)
    statistics.counted(THREE, 100, 100, Lsn(1))
    assert statistics.files()[THREE].is_to_be_counted
    statistics.counted(THREE, 100, 0, None)
    assert statistics.files()[THREE].is_empty
    other = statistics_of(FIVE)
    other.note_dead(FIVE, 100)
    other.counted(FIVE, 100, 100, Lsn(1))
    other.counted(FIVE, 100, 100, Lsn(1))
    assert not other.files()[FIVE].is_to_be_counted, "the note was wrong"


def test_damage_is_remembered() -> None:
    statistics = statistics_of(THREE, FIVE)
    statistics.is_damaged(THREE, "torn")
    statistics.update([THREE, FIVE])
    assert [notes.damage for notes in statistics.files().values()] == ["torn", ""]
