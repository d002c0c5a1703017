"""Group commit: order of sync and notification; a full disk, and a disk that has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.durability.stage import Stage, hook, path_of
from tests.log.stage import QUIET, STORAGE, memory_machine, opened, put, quiet
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Misuse, OutOfRoom, SyncFailed, WarrenError
from warren.base.ids import Epoch
from warren.durability.closing_block import NO_DIGEST, read_closing
from warren.durability.group_commit import WITNESS_AGE_SECONDS_MAX
from warren.log.read.blocks import walk
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.records.format import BlockKind
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import SYNCED, MemoryFiles

SEEDS = range(25)


def stepped(seed: int, body: Callable[[SteppedThreads, MemoryFiles, Stage], None], count: int = 1) -> None:
    """Run a body over a stage whose threads take turns by a seed."""
    threads = SteppedThreads(seed)
    memory = MemoryFiles()

    def run() -> None:
        disk = FaultyFiles(memory, pause=threads.pause)
        body(threads, memory, Stage(count, disk, threads, threads.clock))

    threads.run(run)


def synced_epochs(memory: MemoryFiles, stage: Stage, index: int = 0) -> set[int]:
    """Epochs whose closing block a power cut would leave."""
    memory.sync_directory("/")
    left = memory.crash(SYNCED, SeededRandom(1)).contents(path_of(index + 1))
    headers = walk(memoryview(left), stage.participants[index].identity).headers
    return {header.epoch for header in headers if header.kind == BlockKind.CLOSING}


def is_out_of_room(stage: Stage) -> bool:
    return stage.commit.is_out_of_room


@pytest.mark.parametrize("seed", SEEDS)
def test_no_waiter_returns_before_every_file_of_the_epoch_is_synced(seed: int) -> None:
    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        returned: list[Epoch] = []

        def check(epoch: Epoch, index: int) -> None:
            assert epoch in synced_epochs(memory, stage, index), f"epoch {epoch} was reported and not synced"

        def write(index: int) -> None:
            for _ in range(4):
                epoch = stage.append(index=index)
                stage.commit.wait(epoch)
                check(epoch, index)
                returned.append(epoch)

        def called(epoch: Epoch) -> None:
            assert any(epoch in synced_epochs(memory, stage, index) for index in range(2))

        stage.commit.call_when_durable(called)
        writers = [threads.start(f"writer {i}", partial(write, i % 2)) for i in range(4)]
        for writer in writers:
            writer.join()
        assert len(returned) == 16
        stage.commit.stop()

    stepped(seed, body, count=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_epochs_become_durable_in_order_and_callbacks_get_each_once(seed: int) -> None:
    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        received: list[list[Epoch]] = [[], []]
        for one in received:
            stage.commit.call_when_durable(one.append)

        def write(is_waiting: bool) -> None:
            for _ in range(5):
                epoch = stage.append()
                if is_waiting:
                    stage.commit.wait(epoch)
                else:
                    stage.commit.request_commit()

        writers = [threads.start(f"writer {i}", partial(write, i < 2)) for i in range(3)]
        for writer in writers:
            writer.join()
        stage.commit.stop()
        assert received[0] == received[1] == list(range(1, stage.commit.open_epoch))
        assert stage.commit.durable == received[0][-1]
        assert stage.commit.epochs_committed == len(received[0])
        assert [kind for _, kind in stage.kinds_of()].count(BlockKind.EDIT) == 15

    stepped(seed, body)


def test_what_arrives_while_a_batch_is_on_its_way_is_the_next_batch() -> None:
    stage = Stage()
    late: list[Epoch] = []

    def arrive() -> None:
        if not late:
            late.append(stage.append(b"late"))
            assert stage.commit.durable == 0

    hook(stage.participants[0], arrive)
    first = stage.append(b"early")
    stage.commit.wait(first)
    assert (first, late) == (1, [2])
    assert stage.commit.durable == 1
    assert [epoch for epoch, _ in stage.kinds_of()] == [1, 1], "not a byte of the next epoch before the sync returned"
    stage.commit.wait(late[0])
    assert stage.kinds_of() == [
        (1, BlockKind.EDIT),
        (1, BlockKind.CLOSING),
        (2, BlockKind.EDIT),
        (2, BlockKind.CLOSING),
    ]
    stage.commit.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_batch_is_on_its_way_at_a_time(seed: int) -> None:
    """Rule 2: no byte of an epoch is written before the sync of the one before has returned."""

    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        def write() -> None:
            for _ in range(3):
                stage.commit.wait(stage.append())

        for writer in [threads.start(f"writer {i}", write) for i in range(4)]:
            writer.join()
        stage.commit.stop()
        operations = [step.operation for step in stage.disk.steps if step.operation in ("write", "sync")]
        assert operations == ["write", "sync"] * stage.commit.epochs_committed
        assert stage.commit.epochs_committed < 12, "writers that come together share an epoch"

    stepped(seed, body)


def test_the_first_waiter_commits_in_its_own_thread() -> None:
    stage = Stage()
    threads: list[threading.Thread] = []
    hook(stage.participants[0], lambda: threads.append(threading.current_thread()))
    for _ in range(3):
        stage.commit.wait(stage.append())
    assert threads == [threading.current_thread()] * 3
    stage.commit.stop()


def test_a_ring_commits_in_the_background() -> None:
    stage = Stage()
    is_durable = threading.Event()
    stage.commit.call_when_durable(lambda epoch: is_durable.set())
    stage.append()
    stage.commit.request_commit()
    assert is_durable.wait(30)
    assert stage.commit.durable == 1
    stage.commit.stop()


def test_a_hundred_blocks_gathered_are_one_epoch_one_closing_block_and_one_sync() -> None:
    stage = Stage()
    epochs = {stage.append(b"%d" % i) for i in range(100)}
    for epoch in epochs:
        stage.commit.wait(epoch)
    assert epochs == {1}
    assert stage.kinds_of() == [(1, BlockKind.EDIT)] * 100 + [(1, BlockKind.CLOSING)]
    assert (stage.commit.epochs_committed, stage.commit.syncs) == (1, 1)
    assert len(stage.steps_of("sync")) == 1
    stage.commit.stop()


def test_every_file_of_an_epoch_ends_it_with_the_names_of_all_of_them() -> None:
    """Rule 1: the same closing block in each, naming file, life, end and running checksum of each; the others are
    neither written nor synced."""
    stage = Stage(count=3)
    stage.append(index=0)
    for index in (2, 2):
        stage.append(b"more", index)
    ends = [(p.number, p.identity.incarnation, p.end, p.running, p.blocks_pending) for p in stage.participants]
    stage.commit.wait(Epoch(1))
    bodies = []
    for index in (0, 2):
        raw = stage.disk.open(path_of(index + 1)).view()
        last = walk(raw, stage.participants[index].identity).headers[-1]
        assert last.kind == BlockKind.CLOSING
        bodies.append(read_closing(last.epoch, raw[last.body_at : last.end]))
    assert bodies[0] == bodies[1]
    assert [(p.file, p.incarnation, p.end, p.running, p.blocks) for p in bodies[0].parts] == [ends[0], ends[2]]
    assert sorted(stage.steps_of("sync")) == ["sync /log1", "sync /log3"]
    assert stage.kinds_of(1) == []
    stage.commit.stop()


def test_closing_blocks_form_a_chain_and_the_newest_digest_is_known() -> None:
    """Rule 13."""
    stage = Stage()
    for _ in range(3):
        stage.commit.wait(stage.append())
    raw = stage.disk.open(path_of(1)).view()
    headers = walk(raw, stage.participants[0].identity).headers
    closings = [read_closing(h.epoch, raw[h.body_at : h.end]) for h in headers if h.kind == BlockKind.CLOSING]
    digest, previous = NO_DIGEST, 0
    for closing in closings:
        assert (closing.previous, closing.previous_digest) == (previous, digest)
        digest, previous = closing.digest(stage.commit.timeline), closing.epoch
    assert stage.commit.digest == digest
    stage.commit.stop()


def test_no_callback_and_no_record_precedes_the_sync() -> None:
    stage = Stage()
    hook(stage.participants[0], lambda: stage.diary.events.append("sync"))
    stage.commit.call_when_durable(lambda epoch: stage.diary.events.append(f"durable {epoch}"))
    for _ in range(2):
        stage.commit.wait(stage.append())
    stage.commit.stop()
    assert stage.diary.events == ["sync", "durable 1", "sync", "durable 2", "witness 2"]


def test_the_witness_is_written_when_it_is_a_tenth_of_a_second_behind_and_at_the_stop() -> None:
    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        bell = threads.condition()
        stage.commit.wait(stage.append())
        assert stage.diary.events == []
        with bell:
            bell.wait(3 * WITNESS_AGE_SECONDS_MAX)
        assert stage.diary.events == ["witness 1"], "once, not again while nothing is new"
        stage.commit.wait(stage.append())
        stage.commit.stop()
        assert stage.diary.events == ["witness 1", "witness 2"]

    stepped(3, body)


def test_what_must_happen_at_the_switch_happens_between_two_epochs() -> None:
    """A rotation's steps: when the epoch is durable, before a byte of the next one is written."""
    stage = Stage()
    seen: list[tuple[int, list[tuple[int, int]]]] = []

    def step() -> None:
        stage.append(b"gathered meanwhile")
        seen.append((stage.commit.durable, stage.kinds_of()))

    stage.diary.after = [step]
    stage.commit.wait(stage.append())
    assert seen == [(1, [(1, BlockKind.EDIT), (1, BlockKind.CLOSING)])]
    stage.commit.stop()


def test_what_must_happen_at_the_switch_happens_also_if_nothing_was_gathered() -> None:
    stage = Stage()
    ran: list[int] = []
    stage.diary.after = [lambda: ran.append(1)]
    assert stage.commit.commit_pending()
    assert ran == [1]
    assert stage.commit.open_epoch == 1, "no epoch was used up for it"
    assert not stage.commit.commit_pending()
    stage.commit.stop()


def test_waiting_for_an_epoch_that_holds_nothing_is_a_mistake() -> None:
    stage = Stage()
    with pytest.raises(Misuse, match="holds nothing"):
        stage.commit.wait(Epoch(1))
    stage.commit.stop()


def test_after_the_stop_nothing_is_taken_and_what_was_gathered_is_durable() -> None:
    stage = Stage()
    epoch = stage.append()
    stage.commit.stop()
    assert stage.commit.durable == epoch
    assert stage.diary.events == [f"witness {epoch}"]
    with pytest.raises(Misuse, match="closed"):
        stage.append()
    stage.commit.wait(epoch)


# -- a disk that fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["sync", "write", "allocate"])
def test_a_failure_is_fatal_and_nothing_is_tried_again(operation: str) -> None:
    """Promise 3: stop confirming, never retry and believe."""
    stage = Stage()
    stage.commit.wait(stage.append())
    if operation == "allocate":
        stage.append(bytes(8192))
    stage.disk.faults.append(Fault(FaultKind.IO_ERROR, operation))
    epoch = stage.append()
    with pytest.raises(WarrenError) as failure:
        stage.commit.wait(epoch)
    assert isinstance(failure.value, SyncFailed) == (operation == "sync")
    steps = len(stage.disk.steps)
    for again in (stage.append, partial(stage.commit.wait, epoch), stage.commit.commit_pending):
        with pytest.raises(type(failure.value)):
            again()
    assert stage.commit.durable == 1
    with pytest.raises(type(failure.value)):
        stage.commit.stop()
    assert stage.diary.events == []
    assert len(stage.disk.steps) == steps, "nothing was written or synced behind the failure"


def test_an_epoch_that_cannot_be_closed_ends_it_and_the_next_one_is_not_confirmed_without_it() -> None:
    """What was gathered may be gone half-way: an epoch that is confirmed behind it would be short of entries."""
    stage = Stage(count=2)
    stage.commit.wait(stage.append())
    epoch = stage.append(index=0)
    stage.diary.gather = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        stage.commit.wait(epoch)
    del stage.diary.gather
    for again in (partial(stage.append, index=1), partial(stage.commit.wait, epoch), stage.commit.stop):
        with pytest.raises(SyncFailed, match="ended with ZeroDivisionError") as failure:
            again()
        assert "restart" in failure.value.hint
    assert stage.commit.durable == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failed_sync_reaches_every_waiter(seed: int) -> None:
    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        stage.commit.wait(stage.append())
        stage.disk.faults.append(Fault(FaultKind.IO_ERROR, "sync"))
        failures: list[SyncFailed] = []

        def write() -> None:
            try:
                stage.commit.wait(stage.append())
            except SyncFailed as failure:
                failures.append(failure)

        for writer in [threads.start(f"writer {i}", write) for i in range(5)]:
            writer.join()
        assert len(failures) == 5
        assert stage.commit.durable == 1

    stepped(seed, body)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failed_sync_in_the_background_ends_it_for_every_waiter(seed: int) -> None:
    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        stage.disk.faults.append(Fault(FaultKind.IO_ERROR, "sync"))
        epoch = stage.append()
        stage.commit.request_commit()
        with pytest.raises(SyncFailed):
            stage.commit.wait(epoch)
        with pytest.raises(SyncFailed):
            stage.append()
        with pytest.raises(SyncFailed):
            stage.commit.stop()

    stepped(seed, body)


def test_one_file_of_several_that_fails_to_sync_makes_nothing_durable() -> None:
    stage = Stage(count=3)
    stage.disk.faults.append(Fault(FaultKind.IO_ERROR, "sync", "/log2"))
    for index in range(3):
        stage.append(index=index)
    with pytest.raises(SyncFailed):
        stage.commit.wait(Epoch(1))
    assert stage.commit.durable == 0
    assert stage.diary.events == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_disk_holds_writers_up_and_they_go_on_when_there_is_room(seed: int) -> None:
    """Promise 3: without a restart, and nothing is declared durable before."""

    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        stage.commit.wait(stage.append())
        memory.capacity_bytes = memory.used_bytes + 100
        returned: list[Epoch] = []

        def write() -> None:
            for _ in range(2):
                epoch = stage.append(bytes(5000))
                stage.commit.wait(epoch)
                returned.append(epoch)

        writers = [threads.start(f"writer {i}", write) for i in range(3)]
        while not is_out_of_room(stage):
            threads.pause()
        bell = threads.condition()
        with bell:
            bell.wait(5.0)
        assert (stage.commit.durable, returned) == (1, [])
        memory.capacity_bytes = None
        for writer in writers:
            writer.join()
        assert len(returned) == 6
        assert not is_out_of_room(stage)
        assert sum(kind == BlockKind.EDIT for _, kind in stage.kinds_of()) == 7
        stage.commit.stop()

    stepped(seed, body)


def test_a_full_disk_is_an_error_when_the_log_is_closed() -> None:
    memory = MemoryFiles()
    stage = Stage(files=FaultyFiles(memory))
    stage.commit.wait(stage.append())
    memory.capacity_bytes = memory.used_bytes
    stage.append(bytes(8000))
    with pytest.raises(OutOfRoom):
        stage.commit.stop()
    assert stage.commit.durable == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_waiters_of_a_durable_epoch_return_though_a_rotation_finds_the_disk_full(seed: int) -> None:
    def body(threads: SteppedThreads, memory: MemoryFiles, stage: Stage) -> None:
        is_full = [True]

        def step() -> None:
            if is_full[0]:
                raise OutOfRoom("full")

        stage.diary.after = [step]
        returned: list[str] = []

        def wait() -> None:
            stage.commit.wait(Epoch(1))
            returned.append("durable")

        stage.append()
        writers = [threads.start(f"writer {i}", wait) for i in range(3)]
        bell = threads.condition()
        with bell:
            bell.wait(3.0)
        assert stage.commit.durable == 1
        assert len(returned) == 2, "all but the leader, which returns when there is room"
        is_full[0] = False
        for writer in writers:
            writer.join()
        stage.commit.stop()

    stepped(seed, body)


# -- through the log ------------------------------------------------------------------------------------------------


def test_a_hundred_small_sessions_make_one_block() -> None:
    """DESIGN rule 25: a hundred clients with one entry each, one block, one epoch, one sync."""
    with opened(MemoryFiles()) as store:
        sessions = [store.begin() for _ in range(100)]
        for number, session in enumerate(sessions):
            session.put(STORAGE, b"%d" % number, b"value")
        epochs = {session.end() for session in sessions}
        before = store.commit.syncs
        store.wait(max(epochs))
        participant = store.channels[0].participant
        assert participant.handle is not None
        headers = walk(participant.handle.view(), participant.identity).headers
        assert [header.kind for header in headers] == [BlockKind.FILE_HEADER, BlockKind.ENTRIES, BlockKind.CLOSING]
        assert headers[1].entries == 100
        assert (len(epochs), store.commit.syncs - before) == (1, 1)
        assert len({session.first_lsn for session in sessions}) == 100


@pytest.mark.parametrize(("buffers", "flushes"), [(1, 300), (2, 150), (10, 30), (11, 27), (300, 1), (301, 0)])
def test_op_10_an_automatic_flush_comes_with_every_so_many_blocks(buffers: int, flushes: int) -> None:
    """OP-10: with the block that fills the last of `max_write_buffers`, not one block earlier or later. Nothing waits
    for durability, so each epoch before the stop was flushed because the buffers were full."""
    with opened(MemoryFiles(), settings=quiet(max_write_buffers=buffers)) as store:
        flushed: list[int] = []
        for number in range(1, 301):
            session = store.begin()
            session.put_many(STORAGE, [b"%d" % number], [b"value"])
            epoch = session.end()
            if number % buffers == 0:
                await_durable(store, epoch)
                flushed.append(number)
            assert store.commit.durable == (epoch if number % buffers == 0 else epoch - 1)
        assert len(flushed) == store.commit.epochs_committed == store.writer.flushes == flushes


def await_durable(store: LogStore, epoch: Epoch) -> None:
    """Until the background thread has done it; waiting by `store.wait` would lead the commit itself."""
    with store.commit.gate:
        while store.commit.durable < epoch:
            assert store.commit.gate.wait(30), f"epoch {epoch} was not flushed"


def test_op_10_the_default_is_ten_buffers() -> None:
    """OP-10"""
    assert LogSettings().max_write_buffers == 10


def test_who_must_not_wait_for_a_full_disk_may_gather_more() -> None:
    """Only what waits for durability stands still."""
    full = Fault(FaultKind.NO_SPACE, times=None, is_armed=False)
    with opened(FaultyFiles(MemoryFiles(), [full]), settings=quiet(gathered_blocks_max=1000)) as store:
        full.is_armed = True
        for number in range(300):
            session = store.begin()
            session.put_many(STORAGE, [b"%d" % number], [bytes(1 << 14)])
            epoch = session.end()
        assert store.channels[0].blocks_gathered > 10, "the leader waits for room"
        full.is_armed = False
        store.wait(epoch)


def test_every_epoch_costs_at_least_one_sync() -> None:
    disk = FaultyFiles(MemoryFiles())
    with LogStore.open("/log", replace(QUIET, channel_count=3), memory_machine(disk)) as store:
        before = len(disk.steps)
        for number in range(20):
            put(store, b"key", channel=number % 3)
        syncs = [step for step in disk.steps[before:] if step.operation == "sync" and "pwal" in step.path]
        assert store.commit.epochs_committed == store.commit.syncs == len(syncs) == 20


@pytest.mark.parametrize("part", ["witness", "gather"])
def test_a_defect_in_the_background_thread_ends_the_commit_for_good(part: str) -> None:
    """An append behind it is refused at once: an epoch may be half written."""
    stage = Stage(1, FaultyFiles(MemoryFiles()))

    def fail() -> None:
        raise ValueError("a defect")

    stage.commit.wait(stage.append())
    setattr(stage.commit._hooks, part, fail)
    stage.append()
    stage.commit._stale_since_ns = -(10**12)
    stage.commit.request_commit()
    stage.commit._background.join(30)
    assert isinstance(stage.commit.failure, SyncFailed) and "ValueError('a defect')" in stage.commit.failure.what
    with pytest.raises(SyncFailed):
        stage.append()
