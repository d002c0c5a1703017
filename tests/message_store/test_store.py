"""Writing into the message store: once for all references, or not at all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from weakref import ref

import pytest

from tests.message_store.store_stage import CHUNK_BYTES, A, B, C, Failing, StoreStage, content, file_of, stored_of
from warren.base.errors import Misuse, OutOfRoom, Refused
from warren.base.ids import FileNumber, Lsn, SequenceId
from warren.base.messages import Publication, Run, sizes_of
from warren.message_store import store as store_module
from warren.message_store.body_files import STREAM, Record
from warren.message_store.body_format import BodyPlace, RecordKind, Reference, decode_key
from warren.message_store.index import IndexEntry
from warren.queue_index.batch import IndexBatch, MessageSession
from warren.queue_index.history_format import DequeueReason

TWO = [content(1), content(2)]


@pytest.fixture
def stage() -> StoreStage:
    return StoreStage()


def end_of_stream(stage: StoreStage) -> Lsn:
    return stage.log.stream(STREAM).end


def test_what_several_queues_hold_is_stored_once_and_read_by_each(stage: StoreStage) -> None:
    """MS-04, MS-05: the second and the third request only count."""
    runs = stage.publish(TWO, A, B, C)
    assert stage.bodies() == [b"".join(TWO)]
    assert [stage.contents(run) for run in runs.values()] == [TWO] * 3
    (unit,) = stored_of(runs[A]).units
    entry = stage.moved.look_up(unit.id)
    assert entry is not None and entry.references == 3
    (key,) = stage.record_keys()
    firsts = [Reference(place.queue, place.level, run.first) for place, run in runs.items()]
    assert list(decode_key(key).holders) == firsts, "a liveness check finds them all"


def test_the_same_contents_in_another_publication_are_another_unit(stage: StoreStage) -> None:
    first, second = stage.publish(TWO, A)[A], stage.publish(TWO, A)[A]
    assert len(stage.bodies()) == 2 and first.stored != second.stored


def test_submitted_writes_fly_until_their_changes_end(stage: StoreStage) -> None:
    """MS-09."""
    batch = stage.queues.begin()
    publication = Publication(TWO)
    before = end_of_stream(stage)
    runs = [stage.submit(publication, place, batch) for place in (A, B)]
    assert stage.store.facts()["flying"] == 1 and end_of_stream(stage) == before
    assert all(run.stored == b"" for run in runs)
    batch.end()
    assert stage.store.facts()["flying"] == 0 and end_of_stream(stage) > before
    assert all(run.stored for run in runs)


@pytest.mark.parametrize("end", [lambda batch: batch.end(), lambda batch: batch.abort()])
def test_contents_are_released_when_the_batch_ends(stage: StoreStage, end: Callable[[IndexBatch], object]) -> None:
    """At once, though nothing is durable yet: neither the file's watch nor a reference cycle keeps them in memory."""

    class Watched(Publication):
        __slots__ = ("__weakref__",)

    gc.disable()
    try:
        batch, publication = stage.queues.begin(), Watched(TWO)
        stage.submit(publication, A, batch)
        remaining, open_ones = ref(publication), ref(batch)
        end(batch)
        del batch, publication
        assert remaining() is None and open_ones() is None
    finally:
        gc.enable()


def test_what_has_no_reference_when_the_batch_ends_is_never_written(stage: StoreStage) -> None:
    """MS-10: not a byte, whichever of several holders went last."""
    before = end_of_stream(stage)
    batch = stage.queues.begin()
    publication = Publication(TWO)
    for place in (A, B):
        run = stage.submit(publication, place, batch)
        batch.dequeue(place, run, 0b11, [(run.first, run.end)], DequeueReason.ACKED)
    stage.log.wait(batch.end())
    assert end_of_stream(stage) == before and stage.bodies() == []
    assert stage.store.facts()["flying"] == 0


def test_what_one_of_its_holders_still_wants_is_written_for_that_one(stage: StoreStage) -> None:
    """Rule 17: a body write is cancelled only if no enqueue of it was submitted."""
    batch = stage.queues.begin()
    publication = Publication(TWO)
    gone, remaining = stage.submit(publication, A, batch), stage.submit(publication, B, batch)
    batch.dequeue(A, gone, 0b11, [(gone.first, gone.end)], DequeueReason.ACKED)
    batch.end()
    assert stage.contents(remaining) == TWO
    assert gone.stored == b"" and stage.store.facts()["entries"] == 0, "held once: nothing to count"
    (key,) = stage.record_keys()
    assert [holder.queue for holder in decode_key(key).holders] == [B.queue]


def test_aborted_changes_write_nothing_and_leave_nothing(stage: StoreStage) -> None:
    before = end_of_stream(stage)
    batch = stage.queues.begin()
    stage.submit(Publication(TWO), A, batch)
    batch.abort()
    assert end_of_stream(stage) == before and stage.store.facts()["flying"] == 0
    assert stage.store.is_settled(FileNumber(1))


def test_the_first_batch_to_end_writes_for_all_that_have_submitted_so_far(stage: StoreStage) -> None:
    first, second, third = (stage.queues.begin() for _ in range(3))
    publication = Publication(TWO)
    a, b = stage.submit(publication, A, first), stage.submit(publication, B, second)
    first.end()
    c = stage.submit(publication, C, third)
    second.end()
    third.end()
    assert [stage.contents(run) for run in (a, b, c)] == [TWO] * 3
    assert a.stored == b.stored and c.stored != a.stored
    assert len(stage.bodies()) == 2, "who comes when it is written already has it written again"
    assert stage.store.facts()["flying"] == 0


def test_what_was_cancelled_here_is_not_written_for_others_that_may_cancel_it_too(stage: StoreStage) -> None:
    before = end_of_stream(stage)
    publication = Publication(TWO)
    first, second = stage.queues.begin(), stage.queues.begin()
    run, other = stage.submit(publication, A, first), stage.submit(publication, B, second)
    first.dequeue(A, run, 0b11, [(run.first, run.end)], DequeueReason.ACKED)
    first.end()
    second.dequeue(B, other, 0b11, [(other.first, other.end)], DequeueReason.ACKED)
    second.end()
    assert end_of_stream(stage) == before


def test_a_holder_that_aborts_after_others_wrote_for_it_is_not_counted_any_more(stage: StoreStage) -> None:
    publication = Publication(TWO)
    for is_aborted in (True, False):
        first, second = stage.queues.begin(), stage.queues.begin()
        run, other = stage.submit(publication, A, first), stage.submit(publication, B, second)
        first.end()
        if is_aborted:
            second.abort()
        else:
            second.dequeue(B, other, 0b11, [(other.first, other.end)], DequeueReason.ACKED)
            second.end()
        entry = stage.moved.look_up(stored_of(run).units[0].id)
        assert entry == IndexEntry(1, entry.location if entry else b"")
        assert other.stored == b""


def test_a_file_is_not_settled_before_every_run_that_names_it_is_durable(stage: StoreStage) -> None:
    """Also if the changes of another queue wrote it: a liveness scan now would find its contents dead."""
    first, second = stage.queues.begin(), stage.queues.begin()
    publication = Publication(TWO)
    run, other = stage.submit(publication, A, first), stage.submit(publication, B, second)
    epoch = first.end()
    number = file_of(run)
    assert not stage.store.is_settled(number)
    stage.log.wait(epoch)
    assert not stage.store.is_settled(number), "the second queue has not ended"
    stage.seal()
    stage.dequeue(A, run)
    stage.collect()
    epoch = second.end()
    assert not stage.store.is_settled(number)
    stage.log.wait(epoch)
    assert stage.store.is_settled(number)
    assert stage.contents(other) == TWO


def test_a_large_content_is_a_start_and_chunks_that_link_to_it(stage: StoreStage) -> None:
    """MR-01, MR-02, MR-06, MR-07: the start's LSN is the unit's id, which every chunk names by undo_prev."""
    large = content(7, 2 * CHUNK_BYTES + 300)
    run = stage.publish([content(1), large, content(2)], A)[A]
    assert stage.bodies() == [content(1), large[:1000], large[1000:2000], large[2000:], content(2)]
    unit = stored_of(run).units[1]
    found = [
        (first + at, decode_key(columns.keys.at(at)), columns.undo_prev.at(at))
        for first, columns in stage.log.stream(STREAM).read()
        for at in range(columns.count)
    ]
    start, *chunks = found[1:4]
    assert start[0] == unit.id == unit.places[0].lsn and start[1].kind is RecordKind.START
    assert [(key.kind, key.chunk, key.unit, link) for _, key, link in chunks] == [
        (RecordKind.CHUNK, 1, unit.id, unit.id),
        (RecordKind.CHUNK, 2, unit.id, unit.id),
    ]
    assert [lsn for lsn, _, _ in found[1:4]] == [place.lsn for place in unit.places]
    assert stage.contents(run) == [content(1), large, content(2)]


def test_a_message_over_the_limit_is_refused_and_both_figures_are_named() -> None:
    """C-18: the limit is an operator's."""
    stage = StoreStage(max_message_size=5000)
    stage.publish([content(1, 5000)], A)
    for contents in ([content(1), content(2, 5001)], [content(1, 5001)]):
        with pytest.raises(Refused, match=r"5001 bytes is over the limit of 5000"):
            stage.submit(Publication(contents), A, stage.queues.begin())
    assert stage.store.facts()["flying"] == 0


def test_a_run_of_another_length_than_its_contents_is_misuse(stage: StoreStage) -> None:
    run = Run(SequenceId(0), 3, sizes_of(TWO))
    with pytest.raises(Misuse):
        stage.store.submit(object(), TWO, A, run, stage.queues.begin())


def test_a_crowd_that_no_record_can_name_gets_another_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HOLDERS_MAX", 2)
    stage = StoreStage()
    runs = stage.publish(TWO, A, B, C)
    assert stage.bodies() == [b"".join(TWO)] * 2
    assert [stage.contents(run) for run in runs.values()] == [TWO] * 3


def test_only_the_last_release_makes_garbage(stage: StoreStage) -> None:
    """MS-14: as the index counts; the collector then removes the entry."""
    runs = stage.publish(TWO, A, B)
    stage.seal()
    stage.collect()
    statistics, number = stage.stores.collector._statistics, file_of(runs[A])
    stage.store.note_dead(runs[A].stored, 800)
    assert statistics.files()[number].noted_bytes == 0
    stage.store.note_dead(runs[B].stored, 800)
    assert statistics.files()[number].noted_bytes == 800
    assert stage.store.facts()["entries"] == 1
    stage.collect()
    assert stage.store.facts()["entries"] == 0


def test_a_part_of_a_shared_run_counts_for_its_share(stage: StoreStage) -> None:
    runs = stage.publish([*TWO, content(3, 1500)], A, B)
    stage.seal()
    stage.collect()
    stage.store.note_dead(runs[A].stored, 2300, ends_run=False)
    assert stage.stores.collector._statistics.files()[file_of(runs[A])].noted_bytes == pytest.approx(1150, abs=2)


def test_changes_that_fail_behind_the_store_leave_only_garbage(stage: StoreStage) -> None:
    batch = stage.queues.begin()
    stage.submit(Publication(TWO), A, batch)
    batch.join(Failing())
    with pytest.raises(OutOfRoom):
        batch.end()
    assert stage.store.facts()["flying"] == 0
    stage.database.make_durable()
    stage.seal()
    assert len(stage.collect().released) == 1, "no run names it"


def test_a_write_that_fails_fails_its_waiters_and_stays_in_flight_for_the_others(stage: StoreStage) -> None:
    body_files = stage.stores._body_files[0]
    append = body_files.append

    def failing(records: Sequence[Record]) -> list[BodyPlace]:
        raise OutOfRoom("there is no room")

    first, second = stage.queues.begin(), stage.queues.begin()
    publication = Publication(TWO)
    stage.submit(publication, A, first)
    other = stage.submit(publication, B, second)
    body_files.append = failing  # type: ignore[method-assign]
    with pytest.raises(OutOfRoom):
        first.end()
    body_files.append = append  # type: ignore[method-assign]
    second.end()
    assert stage.contents(other) == TWO
    assert stage.store.is_settled(FileNumber(1)) and stage.store.facts()["flying"] == 0


def test_the_store_writes_before_the_run_that_names_it(stage: StoreStage) -> None:
    """Rule 1: so a run that is durable has durable contents, in whichever epoch the power goes."""
    order: list[str] = []
    body_files, batch = stage.stores._body_files[0], stage.queues.begin()
    append, begin = body_files.append, batch._begin

    def noted_append(records: Sequence[Record]) -> list[BodyPlace]:
        order.append("body")
        return append(records)

    def noted_begin() -> MessageSession:
        order.append("run")
        return begin()

    body_files.append, batch._begin = noted_append, noted_begin  # type: ignore[method-assign]
    stage.submit(Publication(TWO), A, batch)
    batch.end()
    assert order == ["body", "run"]
