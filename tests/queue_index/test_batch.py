"""What one session will do: gathered, cancelled, and written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from warren.base.errors import Misuse
from warren.base.ids import Epoch, QueueId, SequenceId
from warren.base.messages import QueuePlace, Run, sizes_of
from warren.log.writer import Placed
from warren.queue_index.batch import IndexBatch
from warren.queue_index.history_format import DequeueReason, HistoryEvent, HistoryRecord, decode_event
from warren.queue_index.row_format import (
    Counters,
    ack_key,
    counters_key,
    decode_contents,
    decode_counters,
    decode_gone,
    decode_run,
    run_key,
)
from warren.testing.fakes import START_WALL_NS, ManualClock

ORDERS, BILLS = QueuePlace(QueueId(7)), QueuePlace(QueueId(8), 2)
NOW_MS = START_WALL_NS // 1_000_000
EPOCH = Epoch(41)
Entry = tuple[str, int, bytes]


class Written:
    """The message stream: what sessions have written to it, and how many there were."""

    def __init__(self) -> None:
        self.sessions = 0
        self.entries: list[Entry] = []
        self.values: dict[tuple[int, bytes], bytes] = {}
        self.events: list[HistoryEvent] = []
        self.fails_at: str | None = None
        self.aborted = 0

    def begin(self) -> OneSession:
        self.sessions += 1
        return OneSession(self)


class OneSession:
    placed: Sequence[Placed] = ()

    def __init__(self, written: Written) -> None:
        self._written = written

    def put(self, storage: int, key: bytes, value: bytes) -> None:
        self._add(("put", storage, key))
        self._written.values[storage, key] = value

    def remove(self, storage: int, key: bytes) -> None:
        self._add(("remove", storage, key))

    def remove_storage(self, storage: int) -> None:
        self._add(("remove_storage", storage, b""))

    def record(self, value: bytes, *, key: bytes) -> None:
        self._add(("record", 0, key))
        self._written.events.append(decode_event(key, value))

    def end(self) -> Epoch:
        self._fail("end")
        return EPOCH

    def abort(self) -> None:
        self._written.aborted += 1

    def _add(self, entry: Entry) -> None:
        self._fail(entry[0])
        self._written.entries.append(entry)

    def _fail(self, step: str) -> None:
        if self._written.fails_at == step:
            raise Misuse(f"no {step} today")


class Partner:
    """A participant that records its calls."""

    def __init__(self, diary: list[str], name: str = "store", stores: bytes = b"there") -> None:
        self.diary, self.name, self.stores = diary, name, stores
        self.runs: list[tuple[QueuePlace, Run]] = []
        self.fails = False

    def before_commit(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        self.diary.append(f"{self.name} before")
        if self.fails:
            raise Misuse("the store cannot")
        self.runs += runs
        for _, run in runs:
            run.stored = self.stores

    def after_commit(self, epoch: Epoch) -> None:
        self.diary.append(f"{self.name} after {epoch}")

    def on_abort(self) -> None:
        self.diary.append(f"{self.name} aborted")


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def batch(written: Written) -> IndexBatch:
    return IndexBatch(written.begin, ManualClock())


def a_run(first: int, contents: list[bytes]) -> Run:
    return Run(SequenceId(first), len(contents), sizes_of(contents))


def event(
    place: QueuePlace, kind: HistoryRecord, reason: int, *ranges: tuple[int, int], detail: bytes = b""
) -> HistoryEvent:
    return HistoryEvent(place, kind, reason, NOW_MS, ranges, detail)


CONTENTS = [b"a", b"bb", b"ccc"]


# -- one session -----------------------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_end_and_then_all_of_it_in_one_session(
    batch: IndexBatch, written: Written
) -> None:
    one, two = a_run(5, CONTENTS), a_run(0, [b"x"] * 2)
    batch.publish(ORDERS, one, CONTENTS)
    batch.publish(BILLS, two, [b"x"] * 2)
    batch.dequeue(BILLS, two, 0b10, [(1, 2)], DequeueReason.EXPIRED)
    batch.counters(ORDERS, Counters(SequenceId(8)))
    assert (written.sessions, one.epoch) == (0, 0)
    assert batch.end() == EPOCH
    assert written.sessions == 1
    assert written.entries == [
        ("put", 7, run_key(0, 5)),
        ("put", 7, counters_key(0)),
        ("put", 8, run_key(2, 0)),
        ("put", 8, ack_key(2, 0)),
        ("record", 0, b"h" + bytes(7) + b"\x08\x02"),
    ]
    assert (one.epoch, two.epoch) == (EPOCH, EPOCH)
    row = written.values[7, run_key(0, 5)]
    assert decode_run(ORDERS, one.first, row, EPOCH).count == 3
    assert decode_contents(ORDERS, one.first, row, 0, 3) == CONTENTS
    assert decode_gone(BILLS, 0, 2, written.values[8, ack_key(2, 0)]) == 0b10


def test_the_last_message_of_a_run_takes_its_rows_with_it(batch: IndexBatch, written: Written) -> None:
    """MR-03: the end of a message's life is the removal of its row."""
    batch.dequeue(ORDERS, a_run(5, CONTENTS), 0b111, [(5, 6), (7, 8)], DequeueReason.ACKED)
    batch.dequeue(ORDERS, a_run(9, CONTENTS), 0b111, [(9, 12)], DequeueReason.ACKED)
    batch.end()
    rows = [entry for entry in written.entries if entry[0] != "record"]
    assert rows == [
        ("remove", 7, run_key(0, 5)),
        ("remove", 7, ack_key(0, 5)),
        ("remove", 7, run_key(0, 9)),
    ], "there was no ack row where all go at once"


def test_of_repeated_writes_only_the_last_is_stored(batch: IndexBatch, written: Written) -> None:
    run = a_run(5, CONTENTS)
    batch.dequeue(ORDERS, run, 0b001, [(5, 6)], DequeueReason.ACKED)
    batch.counters(ORDERS, Counters(SequenceId(8), SequenceId(6), 2, 5))
    batch.dequeue(ORDERS, run, 0b101, [(7, 8)], DequeueReason.ACKED)
    batch.counters(ORDERS, Counters(SequenceId(8), SequenceId(6), 1, 2))
    batch.end()
    assert [entry[0] for entry in written.entries] == ["put", "put", "record"]
    assert decode_gone(ORDERS, 5, 3, written.values[7, ack_key(0, 5)]) == 0b101
    assert decode_counters(ORDERS, written.values[7, counters_key(0)]).count == 1


def test_an_ack_row_is_not_written_for_a_run_that_went_in_the_end(batch: IndexBatch, written: Written) -> None:
    run = a_run(5, CONTENTS)
    batch.dequeue(ORDERS, run, 0b001, [(5, 6)], DequeueReason.ACKED)
    batch.dequeue(ORDERS, run, 0b111, [(6, 8)], DequeueReason.ACKED)
    batch.end()
    assert [entry[0] for entry in written.entries] == ["remove", "remove", "record"]


def test_an_empty_batch_writes_nothing(batch: IndexBatch, written: Written) -> None:
    batch.requeued(ORDERS, [])
    assert batch.end() == 0
    assert written.sessions == 0


def test_transient_messages_never_touch_the_log(batch: IndexBatch, written: Written) -> None:
    run = Run(SequenceId(0), 1, 1, is_persistent=False)
    batch.publish(ORDERS, run, None)
    batch.dequeue(ORDERS, run, 1, [(0, 1)], DequeueReason.ACKED)
    assert (batch.end(), written.sessions, run.epoch) == (0, 0, 0)


# -- history ---------------------------------------------------------------------------------------------------------


def test_a_dequeue_has_reason_and_time_in_ranges(batch: IndexBatch, written: Written) -> None:
    """QI-04, MR-05: an acknowledgement is a record; those of one fate and one session share it."""
    for first in range(3):
        batch.dequeue(ORDERS, a_run(first, [b"x"]), 1, [(first, first + 1)], DequeueReason.ACKED)
    batch.dequeue(ORDERS, a_run(3, [b"x"]), 1, [(3, 4)], DequeueReason.MOVED, b"expired to bills")
    batch.dequeue(ORDERS, a_run(9, [b"x"]), 1, [(9, 10)], DequeueReason.ACKED)
    batch.end()
    assert written.events == [
        event(ORDERS, HistoryRecord.DEQUEUED, DequeueReason.ACKED, (0, 3), (9, 10)),
        event(ORDERS, HistoryRecord.DEQUEUED, DequeueReason.MOVED, (3, 4), detail=b"expired to bills"),
    ]


def test_deliveries_and_requeues_are_reported_in_ranges_with_the_consumer(batch: IndexBatch, written: Written) -> None:
    """QI-03: a delivery is a record of its own, and changes no row."""
    batch.delivered(ORDERS, [(0, 5), (5, 9)], "ann")
    batch.delivered(ORDERS, [(9, 10)], "bob")
    batch.requeued(ORDERS, [(2, 3)])
    assert batch.end() == EPOCH
    assert written.events == [
        event(ORDERS, HistoryRecord.DELIVERED, 0, (0, 9), detail=b"ann"),
        event(ORDERS, HistoryRecord.DELIVERED, 0, (9, 10), detail=b"bob"),
        event(ORDERS, HistoryRecord.REQUEUED, 0, (2, 3)),
    ]
    assert {entry[0] for entry in written.entries} == {"record"}


# -- cancelled -------------------------------------------------------------------------------------------------------


def test_what_comes_and_goes_within_one_session_leaves_its_history_only(batch: IndexBatch, written: Written) -> None:
    run, other = a_run(5, CONTENTS), a_run(8, CONTENTS)
    batch.publish(ORDERS, run, CONTENTS)
    batch.publish(ORDERS, other, CONTENTS)
    batch.dequeue(ORDERS, run, 0b010, [(6, 7)], DequeueReason.ACKED)
    batch.dequeue(ORDERS, run, 0b111, [(5, 6), (7, 8)], DequeueReason.ACKED)
    batch.end()
    assert written.entries[0] == ("put", 7, run_key(0, 8))
    assert [entry[0] for entry in written.entries] == ["put", "record"]
    assert written.events == [event(ORDERS, HistoryRecord.DEQUEUED, DequeueReason.ACKED, (6, 7), (5, 6), (7, 8))]
    assert (run.epoch, other.epoch) == (0, EPOCH)


def test_a_participating_store_receives_only_runs_that_are_still_wanted(batch: IndexBatch, written: Written) -> None:
    """MS-10, as far as it lies here: what was cancelled is never offered."""
    store = Partner([])
    runs = [Run(SequenceId(first), 1, 5000) for first in range(3)]
    for run in runs:
        batch.publish(ORDERS, run, None)
        batch.join(store)
    batch.publish(ORDERS, a_run(3, [b"x"]), [b"x"])
    batch.dequeue(ORDERS, runs[1], 1, [(1, 2)], DequeueReason.ACKED)
    batch.end()
    assert store.runs == [(ORDERS, runs[0]), (ORDERS, runs[2])]
    assert decode_run(ORDERS, runs[2].first, written.values[7, run_key(0, 2)], EPOCH).stored == b"there"
    assert (7, run_key(0, 1)) not in written.values


# -- queues that go --------------------------------------------------------------------------------------------------


def test_a_queue_that_is_removed_takes_everything_along_but_its_history(batch: IndexBatch, written: Written) -> None:
    store = Partner([])
    batch.join(store)
    batch.publish(ORDERS, Run(SequenceId(0), 1, 5000), None)
    batch.dequeue(ORDERS, a_run(5, CONTENTS), 0b1, [(5, 6)], DequeueReason.ACKED)
    batch.dequeue(ORDERS, a_run(8, CONTENTS), 0b111, [(8, 11)], DequeueReason.ACKED)
    batch.counters(ORDERS, Counters(SequenceId(11)))
    batch.publish(BILLS, a_run(0, [b"x"]), [b"x"])
    batch.remove_queue(ORDERS.queue)
    with pytest.raises(Misuse, match="queue 7 is removed by this batch"):
        batch.publish(ORDERS, a_run(11, [b"x"]), [b"x"])
    batch.end()
    assert [entry[:2] for entry in written.entries] == [("remove_storage", 7), ("record", 0), ("put", 8)]
    assert store.runs == []


# -- participants, and the end -----------------------------------------------------------------------------------------


def test_participants_are_notified_in_order_once_each(batch: IndexBatch) -> None:
    diary: list[str] = []
    one, two = Partner(diary, "one"), Partner(diary, "two")
    for partner in (one, two, one):
        batch.join(partner)
    batch.publish(ORDERS, a_run(0, [b"x"]), [b"x"])
    batch.end()
    assert diary == ["one before", "two before", "one after 41", "two after 41"]


def test_an_abort_writes_nothing_and_notifies_the_participants(batch: IndexBatch, written: Written) -> None:
    store = Partner([])
    batch.join(store)
    batch.publish(ORDERS, a_run(0, [b"x"]), [b"x"])
    batch.abort()
    assert (written.sessions, store.diary) == (0, ["store aborted"])


@pytest.mark.parametrize("step", ["join", "put", "record", "end", "contents"])
def test_an_end_that_fails_anywhere_notifies_the_participants_and_leaves_no_session(
    batch: IndexBatch, written: Written, step: str
) -> None:
    store = Partner([], stores=b"" if step == "contents" else b"there")
    store.fails, written.fails_at = step == "join", step
    run = Run(SequenceId(0), 1, 5000)
    batch.join(store)
    batch.publish(ORDERS, run, None)
    batch.dequeue(ORDERS, a_run(5, CONTENTS), 0b1, [(5, 6)], DequeueReason.ACKED)
    with pytest.raises(Misuse, match="the contents of a run were not stored" if step == "contents" else "no |cannot"):
        batch.end()
    assert store.diary == ["store before", "store aborted"]
    assert written.aborted == (1 if step in ("put", "record") else 0)
    assert run.epoch == 0


def test_changes_end_once(batch: IndexBatch) -> None:
    batch.end()
    for again in (batch.end, batch.abort, lambda: batch.requeued(ORDERS, [(0, 1)])):
        with pytest.raises(Misuse, match="the batch has ended"):
            again()
    with pytest.raises(Misuse, match="the batch has ended"):
        batch.join(Partner([]))


def test_what_cannot_be_written_is_refused_at_the_call_not_at_the_end(batch: IndexBatch, written: Written) -> None:
    with pytest.raises(Misuse, match="a run of 0 messages"):
        batch.publish(ORDERS, Run(SequenceId(0), 0, 1), [])
    with pytest.raises(Misuse, match="a level is from 0 to 255"):
        batch.counters(QueuePlace(QueueId(7), 300), Counters())
    with pytest.raises(Misuse, match="a detail of 70000 bytes"):
        batch.dequeue(ORDERS, a_run(0, [b"x"]), 1, [(0, 1)], DequeueReason.MOVED, bytes(70000))
    assert batch.end() == 0
    assert written.entries == []
