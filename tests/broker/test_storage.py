"""What a start recovers from the log: messages of existing queues, and nothing of deleted ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.broker.stage import BrokerStage
from tools.simulator.volatile_catalog import VolatileCatalog
from warren.base.errors import Damage
from warren.base.ids import FileNumber, SequenceId
from warren.base.messages import QueuePlace
from warren.broker.errors import UnknownQueue
from warren.catalog import queues
from warren.log.file_record import FileState
from warren.log.settings import EntryKind
from warren.records.columns import EntryColumns
from warren.testing.memory_files import SYNCED

BODIES = {"small": 100, "large": 9000}  # in the index, and in the message store


@pytest.fixture(params=BODIES)
def size(request: pytest.FixtureRequest) -> int:
    return BODIES[request.param]


@pytest.fixture
def stage() -> Iterator[BrokerStage]:
    new_stage = BrokerStage()
    new_stage.log_settings = replace(new_stage.log_settings, retention_seconds=0.0, retention_bytes=0)
    new_stage.up()
    yield new_stage
    new_stage.down()


def contents(size: int, dead_letter: str) -> list[bytes]:
    return [f"{dead_letter}{number}".encode().ljust(size, b".") for number in range(20)]


def fill(stage: BrokerStage, size: int) -> set[FileNumber]:
    """Two queues, each with files of the log for itself; those of the first one."""
    files: list[set[FileNumber]] = []
    for name in ("gone", "kept"):
        stage.queue(name)
        seal(stage)
        before = sealed_files(stage)
        stage.put(*contents(size, name), to=name)
        seal(stage)
        files.append(sealed_files(stage) - before)
    return files[0]


def seal(stage: BrokerStage) -> None:
    stage.database.settle()
    stage.database.log.rotate()
    stage.database.settle()
    assert stage.database.reflection is not None
    stage.database.reflection.flush()


def delete_row(stage: BrokerStage, name: str) -> None:
    """The deletion of the queue is final, and its messages were never dequeued."""
    id_ = stage.vhost.find_queue(name).id
    stage.catalog.change(lambda change: queues.delete(change, id_))


def crashed(stage: BrokerStage, forgets_everything: bool = False) -> None:
    """A power cut; the same stage is up again with what is left on disk."""
    disk, store = stage.disk.crash(SYNCED, stage.rng), stage.store
    assert store is not None
    stage.down()
    stage.disk, stage.store = disk, None if forgets_everything else store.crash(stage.rng)
    if forgets_everything:
        stage.place = VolatileCatalog()
    stage.up()


def sealed_files(stage: BrokerStage) -> set[FileNumber]:
    files = stage.database.log.manifest.state.files
    return {number for number, record in files.items() if record.state is FileState.SEALED and record.stream_ends}


def test_messages_are_recovered_into_queues_that_there_are(stage: BrokerStage, size: int) -> None:
    """RC-01: the queue of each message is looked for; RC-02: of one that was deleted nothing is restored, also not
    into another of its name."""
    fill(stage, size)
    delete_row(stage, "gone")
    crashed(stage)
    with pytest.raises(UnknownQueue):
        stage.vhost.find_queue("gone")
    assert stage.get("kept") == contents(size, "kept")
    stage.queue("gone")
    assert stage.length("gone") == 0
    assert stage.get("gone") == []


def test_messages_of_a_deleted_queue_do_not_hold_back_the_log(stage: BrokerStage, size: int) -> None:
    """RC-04: they are skipped and go with their file. RC-05: they have no references, so the files are deleted."""
    files = fill(stage, size)
    delete_row(stage, "gone")
    crashed(stage)
    seal(stage)
    assert files <= sealed_files(stage)
    assert stage.storage.alive_bytes() <= sum(map(len, contents(size, "kept"))), "what is gone is in no map"
    stage.storage.cleaning.run()
    stage.storage.stores.begin()
    stage.storage.stores.collector.count_again()
    stage.storage.stores.collect()
    stage.database.log.purge()
    assert not files & sealed_files(stage), "the files of the queue that is gone went"
    assert stage.get("kept") == contents(size, "kept"), "and the other one's did not"


def test_what_is_left_of_queues_that_a_start_has_removed_is_logged_as_gone(stage: BrokerStage, size: int) -> None:
    """RC-03: a storage at a time, not a message at a time."""
    fill(stage, size)
    gone = stage.vhost.find_queue("gone").id
    delete_row(stage, "gone")
    crashed(stage)
    assert rows_of(stage, gone) > 0
    stage.storage.forget({gone})
    stage.storage.forget(set())
    crashed(stage)
    assert rows_of(stage, gone) == 0
    assert stage.get("kept") == contents(size, "kept")


def rows_of(stage: BrokerStage, storage: int) -> int:
    with closing(stage.database.view_now()) as view:
        return len(list(view.range(storage)))


def test_what_belongs_together_is_in_memory_and_the_log_is_there_to_rebuild_it(stage: BrokerStage, size: int) -> None:
    """IM-01: messages and queues; nothing is read while they pass, and after a loss of everything else they are as they
    were, by the log alone."""
    for name in ("a", "b"):
        stage.queue(name)
    stage.put(*contents(size, "x"), to=["a", "b"])
    stage.put(*contents(size, "y"), to="b")
    before = stage.database.pointed.reads
    assert stage.get("a", 5) == contents(size, "x")[:5]
    assert stage.length("b") == 40
    assert stage.database.pointed.reads == before, "all of it was in memory"
    stage.database.make_durable()
    crashed(stage, forgets_everything=True)
    assert stage.get("a") == contents(size, "x")[5:]
    assert stage.get("b") == contents(size, "x") + contents(size, "y")


def test_messages_that_pass_through_quickly_cost_one_append_and_no_read(size: int) -> None:
    """IM-06: none of them gets to the store, nothing is written twice, and the file they are in goes as it is."""
    stage = BrokerStage()
    stage.reflection = replace(stage.reflection, step_bytes=1 << 20, chunk_bytes=1 << 20, buffer_bytes=1 << 20)
    id_ = stage.up().queue("orders").id
    seal(stage)
    assert stage.database.reflection is not None
    stage.database.reflection.pause()
    reads, put = stage.database.pointed.reads, puts_to_the_store(stage, id_)
    for _ in range(20):
        stage.put(*contents(size, "x"), to="orders")
        assert stage.get("orders") == contents(size, "x")
    stage.database.make_durable()
    stage.database.reflection.resume()
    seal(stage)
    assert [key for key in put if key[:1] == b"r"] == [], "no run"
    assert stage.database.pointed.reads == reads
    cleaned = stage.storage.cleaning.run()
    assert (cleaned.files, cleaned.runs) == (1, 0)
    stage.down()


def puts_to_the_store(stage: BrokerStage, storage: int) -> list[bytes]:
    """The keys of one storage that are put into the store from now on."""
    assert stage.store is not None
    reported: list[bytes] = []
    apply = stage.store.apply

    def watched(entries: Sequence[EntryColumns], *more: Any, **named: Any) -> None:
        for columns in entries:
            kinds, storages = columns.kinds.array().tolist(), columns.storages.array().tolist()
            each = zip(kinds, storages, columns.keys.to_list(), strict=True)
            reported.extend(key for kind, of, key in each if (kind, of) == (EntryKind.PUT, storage))
        apply(entries, *more, **named)

    stage.store.apply = watched  # type: ignore[method-assign]
    return reported


def test_a_deleted_queue_counts_as_garbage_by_what_it_held(stage: BrokerStage, size: int) -> None:
    """An empty one requests no pass of upkeep, and so no rotation; a full one is cleared away as acked messages are."""
    rung = []
    stage.storage.upkeep.request_pass = lambda: rung.append(1)  # type: ignore[method-assign]
    stage.queue("reply")
    stage.vhost.delete_queue(stage.vhost.find_queue("reply"))
    assert not rung and not stage.storage.upkeep._garbage_bytes
    stage.queue("full")
    stage.put(*[bytes(size)] * 10, to="full")
    stage.vhost.delete_queue(stage.vhost.find_queue("full"))
    assert stage.storage.upkeep._garbage_bytes == 10 * size


def test_what_is_known_of_a_queue_goes_with_it(stage: BrokerStage, size: int) -> None:
    """Epochs of a restart and damaged runs used to be kept for every queue that ever was."""
    fill(stage, size)
    crashed(stage)
    queue = stage.vhost.find_queue("gone").id
    queue_id = stage.vhost.find_queue("kept").id
    stage.storage._report_damage(QueuePlace(queue), SequenceId(7), Damage("a bad block"))
    stage.storage._report_damage(QueuePlace(queue_id), SequenceId(8), Damage("another"))
    assert queue in stage.storage._begun and len(stage.storage.alarms()) == 2
    stage.vhost.delete_queue(stage.vhost.find_queue("gone"))
    assert queue not in stage.storage._begun and queue_id in stage.storage._begun
    [reported] = stage.storage.alarms()
    assert "another" in reported
    for number in range(2000):
        stage.storage._report_damage(QueuePlace(queue_id), SequenceId(number), Damage("many"))
    assert len(stage.storage.alarms()) == 1, "one for each queue and file"
