"""Rotation: the six old faults as regression tests, and the control of S4."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise

import pytest

from tests.durability.stage import hook
from tests.log.stage import (
    DIRECTORY,
    QUIET,
    STORAGE,
    headers_of,
    log_records,
    memory_machine,
    names_in,
    opened,
    put,
    quiet,
    rows_of,
    rows_of_file,
    small_disk,
    stepped,
)
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Misuse, SyncFailed
from warren.base.ids import Epoch
from warren.durability.epoch_file import read_witness
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log.file_record import EPOCH, FileRecord, FileState, is_detached_wal, rotated_epoch_name
from warren.log.rotation import RotationResult
from warren.log.store import LogStore
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, MemoryFiles, PowerCut

SEEDS = range(12)


def contents(files: MemoryFiles, record: FileRecord) -> bytes:
    return files.contents(join(DIRECTORY, record.name))


def keys_in(files: MemoryFiles, records: tuple[FileRecord, ...]) -> set[bytes]:
    return {row.key for record in records for row in rows_of_file(files, record)}


class Party:
    """Writers on two channels and rotators, all at once; the result of each is recorded."""

    def __init__(
        self, threads: SteppedThreads, environment: Environment, files: MemoryFiles, writers: int, rotators: int
    ) -> None:
        self.files = files
        self.store = LogStore.open(DIRECTORY, quiet(channel_count=2), environment)
        self.results: list[tuple[set[bytes], RotationResult]] = []  # what was durable at the request, and the answer
        self.bytes_at_answer: dict[str, bytes] = {}
        self.written: dict[bytes, Epoch] = {b"first": put(self.store, b"first")}
        running = [threads.start(f"writer {i}", partial(self._write, i)) for i in range(writers)]
        running += [threads.start(f"rotator {i}", self._rotate) for i in range(rotators)]
        for actor in running:
            actor.join()
        self.store.close()

    def _write(self, name: int) -> None:
        for number in range(5):
            session = self.store.begin(name % 2)
            key = b"%d/%d" % (name, number)
            session.put(STORAGE, key, b"v" * 20)
            self.written[key] = session.commit()

    def _rotate(self) -> None:
        for _ in range(2):
            before = set(self.written)
            result = self.store.rotate()
            for record in result.rotated:
                self.bytes_at_answer.setdefault(record.name, contents(self.files, record))
            self.results.append((before, result))


def party(seed: int, writers: int = 3, rotators: int = 2) -> Party:
    files = small_disk()
    return stepped(seed, lambda threads, environment: Party(threads, environment, files, writers, rotators), files)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_write_reaches_a_rotated_file_after_the_rotation(seed: int) -> None:
    """RT-01. C-32: a file that the answer lists is closed; not a byte of it changes any more."""
    seen = party(seed)
    assert seen.bytes_at_answer
    for name, raw in seen.bytes_at_answer.items():
        assert seen.files.contents(join(DIRECTORY, name)) == raw, name
    for record in log_records(seen.files):
        if record.state is FileState.SEALED:
            assert not any(contents(seen.files, record)[record.end :]), "nothing stands behind a sealed file's end"


@pytest.mark.parametrize("seed", SEEDS)
def test_rotation_requests_at_the_same_time_are_all_handled(seed: int) -> None:
    """RT-02: each of many is answered, and what was durable before its request lies in the files of its answer."""
    seen = party(seed, writers=2, rotators=4)
    assert len(seen.results) == 8
    for before, result in seen.results:
        assert before <= keys_in(seen.files, result.rotated)
        assert all(record.state is FileState.SEALED for record in result.rotated)
    assert {row.key for row in rows_of(seen.files)} == set(seen.written)
    assert len(rows_of(seen.files)) == 11


@pytest.mark.parametrize("seed", SEEDS)
def test_no_epoch_lies_partly_in_rotated_files_and_partly_in_active_ones(seed: int) -> None:
    """RT-03: the switch is the border, for both channels at once."""
    seen = party(seed)
    for _, result in seen.results:
        rotated = {record.number for record in result.rotated}
        for record in log_records(seen.files):
            for header in headers_of(seen.files, record)[1:]:
                assert (header.epoch <= result.epoch) == (record.number in rotated)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rotated_epoch_file_agrees_with_the_rotated_files(seed: int) -> None:
    """RT-04: same durable epoch, same ends, same running checksums."""
    seen = party(seed)
    checked = 0
    for _, result in seen.results:
        path = join(DIRECTORY, rotated_epoch_name(result.epoch))
        if not seen.files.exists(path):  # a rotation that found nothing to rotate
            continue
        witness, problems = read_witness(seen.files, path)
        assert witness is not None
        assert (witness.durable, problems) == (result.epoch, [])
        ends = {end.number: (end.identity, end.end, end.running) for end in witness.ends}
        for record in result.rotated:
            if record.sealed_epoch == result.epoch:
                assert ends[record.number] == (record.identity, record.end, record.running)
                checked += 1
    assert checked


@pytest.mark.parametrize("seed", SEEDS)
def test_rotations_close_upon_each_other_list_the_right_files(seed: int) -> None:
    """RT-06: each answer lists exactly the files sealed up to its own epoch, in order, none twice."""
    seen = party(seed, writers=2, rotators=3)
    sealed = [record for record in log_records(seen.files) if record.state is FileState.SEALED]
    assert sealed
    for _, result in seen.results:
        wanted = [record.number for record in sealed if record.sealed_epoch <= result.epoch]
        assert [record.number for record in result.rotated] == wanted
        assert all(record.last_epoch <= result.epoch for record in result.rotated)
    lists = sorted(({r.number for r in result.rotated} for _, result in seen.results), key=len)
    assert all(shorter <= longer for shorter, longer in pairwise(lists))


def test_back_to_back_rotations_without_a_write_change_nothing() -> None:
    """RT-06: a rotation with nothing to rotate answers with the same list, and uses up no file."""
    files = MemoryFiles()
    with opened(files) as store:
        assert store.rotate().rotated == ()
        put(store, b"key")
        first, second, third = (store.rotate() for _ in range(3))
        assert first == second == third
        assert (len(first.rotated), first.epoch) == (1, 1)
        assert store.rotation.rotations == 1
        assert len(log_records(files)) == 2


# -- the control, step by step ---------------------------------------------------------------------------------------


class Busy:
    """A store whose leader is held inside the sync of an epoch, while the test does things."""

    def __init__(self, store: LogStore, meanwhile: Callable[[], None]) -> None:
        self.store = store
        self._meanwhile: list[Callable[[], None]] = [meanwhile]
        hook(store.channels[0].participant, self._at_sync)

    def _at_sync(self) -> None:
        if self._meanwhile:
            self._meanwhile.pop()()

    def request(self) -> RotationThread:
        """A rotation requested from another thread; returns when it stands in the queue."""
        waiting = len(self.store.rotation._queue)
        requested = RotationThread(self.store)
        requested.start()
        while len(self.store.rotation._queue) == waiting:
            assert requested.is_alive()
        return requested


class RotationThread(threading.Thread):
    def __init__(self, store: LogStore) -> None:
        super().__init__(daemon=True)
        self._store = store
        self.result: RotationResult | None = None

    def run(self) -> None:
        self.result = self._store.rotate()

    def answer(self) -> RotationResult:
        self.join(15)
        assert self.result is not None, "no answer"
        return self.result


def test_a_request_is_queued_and_its_requester_waits() -> None:
    """RO-01: nothing is renamed while an epoch is on its way; the answer comes when the rotation is done."""
    files = MemoryFiles()
    store = opened(files)
    requested: list[RotationThread] = []

    def meanwhile() -> None:
        requested.append(busy.request())
        requested[0].join(0.05)
        assert requested[0].is_alive()
        assert requested[0].result is None
        assert not any(is_detached_wal(name) for name in names_in(files))

    busy = Busy(store, meanwhile)
    put(store, b"key")
    result = requested[0].answer()
    assert [record.name for record in result.rotated] == ["pwal_0000.0000000001"]
    store.close()


def test_a_session_that_ends_before_the_switch_is_in_the_rotated_file() -> None:
    """RT-05. C-39 reads "ends" for "begins": requested, but not yet switched, a rotation still takes what ends now;
    and what was begun before but ends behind the switch is in the new file."""
    files = MemoryFiles()
    store = opened(files)
    requested: list[RotationThread] = []
    late = store.begin()
    late.put(STORAGE, b"begun before, ended behind", b"")

    def meanwhile() -> None:
        requested.append(busy.request())
        session = store.begin()
        session.put(STORAGE, b"ended before the switch", b"")
        session.end()

    busy = Busy(store, meanwhile)
    put(store, b"first")
    while not any(is_detached_wal(name) for name in names_in(files)):
        store.commit.commit_pending()
    late.commit()
    result = requested[0].answer()
    assert keys_in(files, result.rotated) == {b"first", b"ended before the switch"}
    assert result.epoch == 2
    assert {row.key for row in rows_of(files) if row.epoch > result.epoch} == {b"begun before, ended behind"}
    store.close()


def is_of_log(step: str) -> bool:
    return step in ("write pwal_0000", "sync pwal_0000")


def test_a_waiting_request_runs_at_the_next_switch_before_the_next_epoch_and_the_epochs_continue() -> None:
    """RO-02: the queue is read before every switch."""
    disk = FaultyFiles(MemoryFiles())
    store = LogStore.open(DIRECTORY, QUIET, memory_machine(disk))
    requested: list[RotationThread] = []
    busy = Busy(store, lambda: requested.append(busy.request()))
    start = len(disk.steps)
    put(store, b"epoch 1")
    put(store, b"epoch 2")
    put(store, b"epoch 3")
    result = requested[0].answer()
    reported = [str(step).replace(DIRECTORY + "/", "") for step in disk.steps[start:]]
    reported = [step for step in reported if step.startswith(("rename pwal", "rename epoch")) or is_of_log(step)]
    rotated = [
        "rename pwal_0000 to pwal_0000.0000000001",
        f"rename epoch to {rotated_epoch_name(result.epoch)}",
        "write pwal_0000",  # the header of the new file
        "sync pwal_0000",
    ]
    epoch = ["write pwal_0000", "sync pwal_0000"]
    at = reported.index(rotated[0])
    assert reported[at : at + 4] == rotated
    assert reported[:at] == epoch * result.epoch
    assert reported[at + 4 :] == epoch * (3 - result.epoch)
    assert result.epoch in (1, 2), "the next switch, or the one behind it: not later"
    assert [row.epoch for row in rows_of(disk)] == [1, 2, 3]
    store.close()


@pytest.mark.parametrize("channels", [1, 2])
def test_the_epoch_switch_continues_after_the_renames(channels: int) -> None:
    """RO-05: the closed epoch is in the renamed files, the next number is in the new ones, with no gap between them;
    a client that waited for the closed epoch is answered."""
    files = MemoryFiles()
    with opened(files, settings=quiet(channel_count=channels)) as store:
        before = [put(store, b"before", channel=channel) for channel in range(channels)]
        result = store.rotate()
        assert result.epoch == before[-1] == store.commit.durable
        assert store.commit.open_epoch == result.epoch + 1
        after = [put(store, b"after", channel=channel) for channel in range(channels)]
        assert after == list(range(result.epoch + 1, result.epoch + 1 + channels))
        records = store.manifest.state.files.values()
        found = {record.name: [row.epoch for row in rows_of_file(files, record)] for record in records}
    for channel in range(channels):
        assert found[f"pwal_{channel:04}"] == [after[channel]]
        (rotated,) = [name for name in found if name.startswith(f"pwal_{channel:04}.")]
        assert found[rotated] == [before[channel]]


def test_a_rotation_renames_the_log_files_and_the_epoch_file() -> None:
    """RO-03: the same inodes under new names, and new files under the old ones."""
    files = MemoryFiles()
    with opened(files, settings=quiet(channel_count=2)) as store:
        for channel in range(2):
            put(store, b"key", channel=channel)
        before = {name: files.stat(join(DIRECTORY, name)).inode for name in ("pwal_0000", "pwal_0001", EPOCH)}
        result = store.rotate()
        renamed = {
            "pwal_0000": "pwal_0000.0000000001",
            "pwal_0001": "pwal_0001.0000000002",
            EPOCH: rotated_epoch_name(result.epoch),
        }
        for old, new in renamed.items():
            assert files.stat(join(DIRECTORY, new)).inode == before[old]
            assert files.stat(join(DIRECTORY, old)).inode != before[old]
        assert [record.name for record in result.rotated] == ["pwal_0000.0000000001", "pwal_0001.0000000002"]
        assert files.crash(SYNCED, SeededRandom(1)).exists(join(DIRECTORY, renamed["pwal_0000"])), "names are synced"


def test_a_channel_without_entries_keeps_its_file() -> None:
    files = MemoryFiles()
    with opened(files, settings=quiet(channel_count=2)) as store:
        put(store, b"key", channel=1)
        result = store.rotate()
        assert [record.channel for record in result.rotated] == [1]
        assert "pwal_0000" in names_in(files)
        put(store, b"key", channel=0)
        assert sorted(record.channel for record in store.rotate().rotated) == [0, 1]


def test_at_most_one_request_is_taken_per_switch() -> None:
    """RO-04: of three that wait, each switch takes one."""
    files = MemoryFiles()
    store = opened(files)
    requested: list[RotationThread] = []
    taken: list[int] = []
    at_switch = store.rotation.at_switch

    def counted() -> Callable[[], None] | None:
        waiting = len(store.rotation._queue)
        after = at_switch()
        taken.append(waiting - len(store.rotation._queue))
        return after

    store.rotation.at_switch = counted  # type: ignore[method-assign]

    def meanwhile() -> None:
        for _ in range(3):
            requested.append(busy.request())

    busy = Busy(store, meanwhile)
    put(store, b"key")
    assert [len(one.answer().rotated) for one in requested] == [1, 1, 1]
    assert [count for count in taken if count] == [1, 1, 1]
    store.close()


def test_the_answer_waits_for_the_sessions_that_were_open_at_the_switch() -> None:
    """RO-06, for ended and aborted ones; a session begun behind the switch is not waited for."""
    for end in ("commit", "abort"):
        files = MemoryFiles()
        store = opened(files)
        put(store, b"key")
        session = store.begin()
        session.put(STORAGE, b"open", b"")
        requested = RotationThread(store)
        requested.start()
        while not any(is_detached_wal(name) for name in names_in(files)):
            assert requested.is_alive()
        later = store.begin()
        requested.join(0.05)
        assert requested.is_alive(), "the files are rotated, but a session of before is open"
        getattr(session, end)()
        result = requested.answer()
        assert result.is_complete
        assert keys_in(files, result.rotated) == {b"key"}
        later.abort()
        store.close()


def test_waiting_for_sessions_holds_up_no_epoch() -> None:
    """RO-07: while the answer waits, others commit, and another rotation is done."""
    files = MemoryFiles()
    store = opened(files)
    put(store, b"key")
    session = store.begin()
    requested = RotationThread(store)
    requested.start()
    while not any(is_detached_wal(name) for name in names_in(files)):
        assert requested.is_alive()
    durable = store.durable
    for number in range(5):
        put(store, b"%d" % number)
    assert store.durable == durable + 5
    second = RotationThread(store)
    second.start()
    while store.rotation.rotations < 2:
        assert second.is_alive()
    put(store, b"more")
    assert requested.is_alive()
    session.abort()
    assert len(requested.answer().rotated) == 1, "its own list, not that of the rotation behind it"
    assert len(second.answer().rotated) == 2
    store.close()


def test_the_answer_does_not_wait_for_ever() -> None:
    """RO-06 has a deadline: then it says that it is not complete."""

    def body(threads: SteppedThreads, environment: Environment) -> None:
        store = LogStore.open(DIRECTORY, quiet(rotation_reply_seconds_max=30.0), environment)
        put(store, b"key")
        session = store.begin()
        before = environment.clock.monotonic_ns()
        result = store.rotate()
        assert not result.is_complete
        assert len(result.rotated) == 1
        assert 30e9 <= environment.clock.monotonic_ns() - before < 31e9
        session.abort()
        assert store.rotate().is_complete
        store.close()

    stepped(1, body)


def test_the_answer_lists_all_rotated_files() -> None:
    """RO-08: not only those of this rotation, but all, in the order they were made, also those of runs before."""
    files = MemoryFiles()
    for run in range(2):
        with opened(files, run, quiet(channel_count=2)) as store:
            for number in range(3):
                put(store, b"%d" % number, channel=number % 2)
                result = store.rotate()
    assert len({record.name for record in result.rotated}) == 6
    assert len(keys_in(files, result.rotated)) == 3
    assert list(result.rotated) == [r for r in log_records(files) if r.state is FileState.SEALED]


# -- by size ---------------------------------------------------------------------------------------------------------


def test_a_file_that_has_grown_enough_is_rotated_at_the_next_switch() -> None:
    """C-33: files rotate by size, whatever the size of their containers."""
    files = MemoryFiles()
    with opened(files, settings=quiet(rotate_bytes=100_000, channel_count=2)) as store:
        for number in range(12):
            put(store, b"%d" % number, bytes(30_000), channel=number % 2)
        sealed = [record for record in log_records(files) if record.state is FileState.SEALED]
        assert store.rotation.rotations == len(sealed) // 2 == 1
        assert all(100_000 <= record.end < 140_000 or record.channel for record in sealed)
        assert len(rows_of(files)) == 12
        assert {record.sealed_epoch for record in sealed} == {7}, "both channels at once: an epoch is whole"


def test_a_tiny_limit_rotates_every_epoch_and_the_store_can_still_be_closed() -> None:
    files = MemoryFiles()
    with opened(files, settings=quiet(rotate_bytes=1)) as store:
        for number in range(3):
            put(store, b"%d" % number)
        assert store.rotation.rotations == 3
    assert len(rows_of(files)) == 3


# -- when things go wrong --------------------------------------------------------------------------------------------


def test_a_waiter_for_a_rotation_gets_the_failure_that_ended_the_log() -> None:
    disk = FaultyFiles(MemoryFiles())
    store = LogStore.open(DIRECTORY, QUIET, memory_machine(disk))
    put(store, b"key")
    disk.faults.append(Fault(FaultKind.IO_ERROR, "sync", "*/pwal_0000"))
    with pytest.raises(SyncFailed):
        store.rotate()
    with pytest.raises(SyncFailed):
        store.begin()
    store.abandon()


def test_a_closed_log_is_not_rotated() -> None:
    store = opened(MemoryFiles())
    store.close()
    with pytest.raises(Misuse, match="closed"):
        store.rotate()


def test_a_rotation_that_finds_the_disk_full_continues_when_there_is_room() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, b"key")
    files.capacity_bytes = files.used_bytes + 1000
    requested = RotationThread(store)
    requested.start()
    while not store.commit.is_out_of_room:
        assert requested.is_alive()
    files.capacity_bytes = None
    result = requested.answer()
    assert len(result.rotated) == 1
    put(store, b"continues")
    store.close()
    with opened(files, 2) as store:
        assert {row.key for row in rows_of(files)} == {b"key", b"continues"}


def rotate_twice(environment: Environment, reported: list[bytes]) -> None:
    store = LogStore.open(DIRECTORY, quiet(channel_count=2), environment)
    for turn in range(2):
        for channel in range(2):
            key = b"%d/%d" % (turn, channel)
            put(store, key, channel=channel)
            reported.append(key)
        store.rotate()
    store.close()


def rotated_disk(seed: int, cut_at: int | None) -> tuple[MemoryFiles, FaultyFiles, list[bytes]]:
    """A disk on which rotations were under way when the power went, and what was confirmed by then."""
    memory, threads = small_disk(), SteppedThreads(seed)
    disk = FaultyFiles(memory, cut_at=cut_at, cut_fraction=0.5, pause=threads.pause, on_cut=threads.cut_power)
    reported: list[bytes] = []
    with suppress(PowerCut):
        threads.run(lambda: rotate_twice(memory_machine(disk, seed, threads, threads.clock), reported))
    return memory, disk, reported


@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_a_power_cut_at_any_step_of_a_rotation_loses_nothing_that_was_confirmed(model: CrashModel) -> None:
    _, whole, _ = rotated_disk(1, None)
    assert sum(step.operation == "rename" for step in whole.steps) > 5
    for step in range(len(whole.steps)):
        memory, _, reported = rotated_disk(1, step)
        left = memory.crash(model, SeededRandom(step))
        with opened(left, 3, quiet(channel_count=2)) as store:
            keys = [row.key for row in rows_of(left, store.durable)]
            assert set(reported) <= set(keys), f"cut at step {step}: {whole.steps[step]}"
            assert len(keys) == len(set(keys)) <= len(reported) + 1
            epochs = [header.epoch for record in log_records(left) for header in headers_of(left, record)]
            assert store.commit.open_epoch > max([0, *epochs])
