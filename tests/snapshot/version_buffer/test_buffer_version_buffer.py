"""What every version buffer keeps to: one suite, run over the one in memory with its files and the one in RocksDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.log.merge_model import Entry, columns_of, entries_of
from tests.snapshot.version_buffer_suite import KINDS, Model, Stage, all_of, emptied, put
from warren.base.errors import Misuse
from warren.base.ids import ChannelId
from warren.log.settings import EntryKind
from warren.records.columns import Texts
from warren.records.format import ENTRY_BYTES_MAX
from warren.snapshot.version_buffer.buffer import TakenEntries, VersionBuffer

A, B = ChannelId(0), ChannelId(1)


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    new_stage = Stage(request.param, tmp_path)
    yield new_stage
    new_stage.close()


@pytest.fixture
def buffer(stage: Stage) -> VersionBuffer:
    return stage.open()


def test_vb_01_entries_are_added_read_up_to_a_version_and_persisted(buffer: VersionBuffer) -> None:
    buffer.add(A, 0, columns_of([put((1, 0), b"a"), put((2, 0), b"b")]))
    taken = buffer.take((1, 9))
    assert all_of(taken) == [put((1, 0), b"a")]
    taken.done()
    assert buffer.entries == 1
    assert buffer.persist()
    assert emptied(buffer) == [put((2, 0), b"b")]


def test_vb_02_a_lower_version_comes_first_however_entries_came(buffer: VersionBuffer) -> None:
    versions = [(3, 1), (1, 7), (1 << 60, 0), (2, 1 << 63), (0, 5), (2, 0), (1, 6)]
    for record, version in enumerate(versions):
        buffer.add(A if record % 2 else B, record, columns_of([put(version)]))
    assert [entry.version for entry in emptied(buffer)] == sorted(versions)
    buffer.add(A, 0, columns_of([put(version) for version in versions]))
    buffer.add(B, 0, columns_of([put((1, 8)), put((1, 7))]))
    assert [entry.version for entry in emptied(buffer)] == sorted([*versions, (1, 8), (1, 7)])


def test_vb_06_entries_of_equal_version_do_not_overwrite_one_another(buffer: VersionBuffer) -> None:
    buffer.add(A, 0, columns_of([put((1, 1), b"a"), put((1, 1), b"a", b"again")]))
    buffer.add(B, 0, columns_of([put((1, 1), b"a", b"elsewhere")]))
    assert [entry.value for entry in emptied(buffer)] == [b"v", b"again", b"elsewhere"]


def test_vb_07_entries_of_equal_version_come_by_channel_and_record(buffer: VersionBuffer) -> None:
    buffer.add(B, 500, columns_of([put((1, 1), b"b500")]))
    buffer.add(A, 300, columns_of([put((1, 1), b"a300"), put((1, 1), b"a301")]))
    buffer.add(B, 2, columns_of([put((1, 1), b"b2")]))
    buffer.add(A, 1, columns_of([put((1, 1), b"a1")]))
    assert [entry.key for entry in emptied(buffer)] == [b"a1", b"a300", b"a301", b"b2", b"b500"]
    for channel, first in ((B, 7), (A, 9), (A, 4)):
        buffer.add(channel, first, columns_of([put((1, n), b"%d %d" % (channel, first + n)) for n in (0, 1)]))
    assert [entry.key for entry in emptied(buffer)] == [b"0 4", b"0 9", b"1 7", b"0 5", b"0 10", b"1 8"]


def test_vb_19_reading_stops_at_the_version_and_what_is_above_it_stays(buffer: VersionBuffer) -> None:
    buffer.add(A, 0, columns_of([put((2, minor), b"%d" % minor) for minor in range(10)]))
    taken = buffer.take((2, 3))
    assert [entry.version for entry in all_of(taken)] == [(2, 0), (2, 1), (2, 2), (2, 3)]
    taken.done()
    assert [entry.version for entry in emptied(buffer)] == [(2, minor) for minor in range(4, 10)]
    assert buffer.entries == 0


def test_every_column_comes_back_as_it_came(buffer: VersionBuffer) -> None:
    entries = [
        Entry(EntryKind.REMOVE, 0, b"", (1, 1), b"", epoch=1 << 62, undo=((1 << 64) - 1, 0)),
        Entry(EntryKind.CLEAR_STORAGE, (1 << 64) - 1, b"", (1, 2), b"", epoch=9),
        Entry(EntryKind.PUT, 7, b"\0\xff" * 50, (1, 3), b"x" * 5000, epoch=3, undo=(0, 4)),
    ]
    buffer.add(A, 0, columns_of(entries))
    assert emptied(buffer) == entries


def test_what_was_added_is_a_copy_and_not_a_view_of_the_callers_memory(buffer: VersionBuffer) -> None:
    entries = [put((1, n), b"key%d" % n, b"value" * n) for n in range(5)]
    batch = columns_of(entries)
    heap = bytearray(batch.values.heap.tobytes())
    lent = Texts(np.frombuffer(heap, dtype=np.uint8), batch.values.offsets)
    buffer.add(A, 0, replace(batch, values=lent))
    heap[:] = b"x" * len(heap)
    assert emptied(buffer) == entries


def test_a_part_of_a_batch_is_kept_as_that_part(buffer: VersionBuffer) -> None:
    entries = [put((1, n), b"key" * n, b"value" * n) for n in range(9)]
    buffer.add(A, 2, columns_of(entries).part(2, 7))
    assert emptied(buffer) == entries[2:7]


def test_x_04_what_was_taken_is_there_until_it_is_done(buffer: VersionBuffer) -> None:
    """X-04, VB-09: reading deletes nothing, so after a failure to apply all of it is there again, also twice."""
    entries = [put((1, n), b"%d" % n) for n in range(20)]
    buffer.add(A, 0, columns_of(entries))
    taken = buffer.take((1, 99))
    assert all_of(taken) == all_of(taken) == entries
    assert buffer.entries == 20
    taken.put_back()
    again = buffer.take((1, 99))
    assert all_of(again) == entries
    again.done()
    assert buffer.entries == 0 and emptied(buffer) == []


def test_what_comes_late_into_a_range_that_is_taken_is_neither_in_it_nor_lost(buffer: VersionBuffer) -> None:
    buffer.add(A, 0, columns_of([put((1, 1), b"early"), put((1, 5), b"early")]))
    taken = buffer.take((1, 9))
    buffer.add(B, 0, columns_of([put((1, 0), b"late"), put((1, 3), b"late"), put((2, 0), b"above")]))
    buffer.add(B, 3, columns_of([put((1, 9), b"late")]))
    assert [entry.key for entry in all_of(taken)] == [b"early", b"early"]
    taken.done()
    assert buffer.entries == 4
    assert [entry.version for entry in emptied(buffer)] == [(1, 0), (1, 3), (1, 9), (2, 0)]


def test_done_without_having_read_is_done_all_the_same(buffer: VersionBuffer) -> None:
    buffer.add(A, 0, columns_of([put((1, n)) for n in range(5)]))
    taken = buffer.take((1, 2))
    buffer.add(B, 0, columns_of([put((1, 1), b"late")]))
    taken.done()
    assert buffer.entries == 3
    assert [entry.version for entry in emptied(buffer)] == [(1, 1), (1, 3), (1, 4)]


def test_one_taking_at_a_time_and_each_ends_once(buffer: VersionBuffer) -> None:
    taken = buffer.take((1, 0))
    with pytest.raises(Misuse, match="taken from the version buffer already"):
        buffer.take((2, 0))
    taken.done()
    for end in (taken.done, taken.put_back):
        with pytest.raises(Misuse, match="ended already"):
            end()
    buffer.take((2, 0)).put_back()


def test_vb_24_lc_01_an_entry_over_the_limit_is_refused_and_leaves_nothing_behind(buffer: VersionBuffer) -> None:
    buffer.add(A, 0, columns_of([put((1, 0), b"k", b"v" * (ENTRY_BYTES_MAX - 1))]))
    with pytest.raises(Misuse, match=f"entry of {ENTRY_BYTES_MAX + 1} bytes is over the limit of {ENTRY_BYTES_MAX}"):
        buffer.add(A, 1, columns_of([put((1, 1)), put((1, 2), b"k", b"v" * ENTRY_BYTES_MAX)]))
    assert buffer.entries == 1
    [found] = emptied(buffer)
    assert len(found.value) == ENTRY_BYTES_MAX - 1


def test_a_batch_that_does_not_know_its_epochs_is_refused(buffer: VersionBuffer) -> None:
    batch = columns_of([put((1, 0))])
    with pytest.raises(Misuse, match="epochs"):
        buffer.add(A, 0, type(batch)(*[getattr(batch, name) for name in batch.__slots__ if name != "epochs"]))


def test_what_is_taken_comes_in_small_batches(buffer: VersionBuffer) -> None:
    for record in range(40):
        buffer.add(A, record * 50, columns_of([put((1, n), b"%d" % n, b"v" * 20) for n in range(record, 2000, 40)]))
    taken = buffer.take((1, 5000))
    batches = list(taken.batches())
    assert [entry.version[1] for entry in entries_of(batches)] == list(range(2000))
    assert max(batch.keys.size_bytes + batch.values.size_bytes for batch in batches) <= 500
    taken.done()


def test_c_15_a_buffer_that_is_opened_is_empty_whatever_was_in_it(stage: Stage) -> None:
    """C-15, X-03: the log has what was in it, and is read again from the store's mark."""
    buffer = stage.open()
    buffer.add(A, 0, columns_of([put((1, n)) for n in range(50)]))
    buffer.persist()
    buffer.add(A, 50, columns_of([put((2, 0))]))
    again = stage.open()
    assert again.entries == 0 and emptied(again) == []
    again.add(A, 0, columns_of([put((1, 1))]))
    assert emptied(again) == [put((1, 1))]


def test_vb_23_what_was_persisted_can_be_gone_on_with_by_a_restore(stage: Stage) -> None:
    buffer = stage.open()
    entries = [put((1, n), b"%d" % n) for n in range(50)]
    buffer.add(A, 0, columns_of(entries[25:]))
    buffer.add(B, 0, columns_of(entries[:25]))
    taken = buffer.take((1, 10))
    files = buffer.persist()
    taken.put_back()
    restored = stage.open(files)
    assert restored.entries == 50
    assert emptied(restored) == entries


def test_vb_13_threads_may_add_while_others_add_and_take(buffer: VersionBuffer) -> None:
    found: list[Entry] = []

    def add(channel: int) -> None:
        for n in range(100):
            buffer.add(ChannelId(channel), n * 3, columns_of([put((n, channel), b"%d" % i) for i in range(3)]))

    threads = [threading.Thread(target=add, args=(channel,)) for channel in range(4)]
    for thread in threads:
        thread.start()
    for upper in range(0, 100, 5):
        taken = buffer.take((upper, 1 << 20))
        found += all_of(taken)
        taken.done()
    for thread in threads:
        thread.join()
    found += emptied(buffer)
    assert sorted((e.version, e.key) for e in found) == [
        ((n, channel), b"%d" % i) for n in range(100) for channel in range(4) for i in range(3)
    ]


@st.composite
def additions(draw: st.DrawFn) -> list[Entry]:
    versions = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=12))
    value = draw(st.sampled_from([b"", b"v", b"v" * 30, b"v" * 3000]))
    return [put(version, b"%d" % number, value) for number, version in enumerate(versions)]


class BufferMachine(RuleBasedStateMachine):
    kind = "memory"

    @initialize()
    def begin(self) -> None:
        self._directory = TemporaryDirectory()
        self.stage = Stage(self.kind, Path(self._directory.name))
        self.buffer = self.stage.open()
        self.model = Model()
        self.taken: TakenEntries | None = None
        self.expected: list[Entry] = []

    def teardown(self) -> None:
        if hasattr(self, "stage"):
            self.stage.close()
            self._directory.cleanup()

    @rule(channel=st.integers(0, 2), entries=additions())
    def add(self, channel: int, entries: list[Entry]) -> None:
        self.model.add(self.buffer, channel, entries)

    @rule(channel=st.integers(0, 2), entries=st.lists(additions(), min_size=5, max_size=5))
    def add_much(self, channel: int, entries: list[list[Entry]]) -> None:
        for some in entries:
            self.model.add(self.buffer, channel, some)

    @precondition(lambda self: self.taken is None)
    @rule(up_to=st.tuples(st.integers(0, 4), st.integers(0, 5)))
    def take(self, up_to: tuple[int, int]) -> None:
        self.taken = self.buffer.take(up_to)
        self.expected = self.model.take(up_to)

    @precondition(lambda self: self.taken is not None)
    @rule()
    def read(self) -> None:
        assert self.taken is not None and all_of(self.taken) == self.expected

    @precondition(lambda self: self.taken is not None)
    @rule(is_done=st.booleans(), is_read=st.booleans())
    def end(self, is_done: bool, is_read: bool) -> None:
        assert self.taken is not None
        assert not is_read or all_of(self.taken) == self.expected
        if is_done:
            self.taken.done()
        else:
            self.taken.put_back()
        self.model.end(is_done)
        self.taken = None

    @rule()
    def persist(self) -> None:
        assert self.buffer.persist() or not self.model.entries

    @precondition(lambda self: self.taken is None)
    @rule(is_restored=st.booleans())
    def reopen(self, is_restored: bool) -> None:
        """Nothing of it is left, unless it was persisted for a restore."""
        self.buffer = self.stage.open(self.buffer.persist() if is_restored else None)
        if not is_restored:
            self.model.waiting = []

    @invariant()
    def it_has_what_was_added_and_is_not_done(self) -> None:
        if hasattr(self, "buffer"):
            assert self.buffer.entries == self.model.entries


class RocksdbMachine(BufferMachine):
    kind = "rocksdb"


@pytest.mark.parametrize(("state_machine", "examples"), [(BufferMachine, 60), (RocksdbMachine, 12)])
def test_any_sequence_of_operations_gives_what_a_sorted_list_would(
    state_machine: type[BufferMachine], examples: int
) -> None:
    quick = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(state_machine, settings=quick)
