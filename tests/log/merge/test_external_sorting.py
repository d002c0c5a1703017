"""The plans of a merge: equal results, each by its own way, within the memory it was given."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.merge_model import Batches, Entry, columns_of, entries_of, histories, merged_by_hand
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Damage, OutOfRoom, Refused
from warren.base.threads import SystemThreads, Threads
from warren.log.merge import external as external_module
from warren.log.merge import external as plans
from warren.log.merge import external as sampling
from warren.log.merge.external import (
    Input,
    MergeResources,
    external,
    memory_bytes_of,
    put_only,
    sorted_merge,
    update_to_max,
)
from warren.log.merge.merge import Clears, merge
from warren.log.settings import EntryKind
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.testing.memory_files import MemoryFiles

PUT = EntryKind.PUT


class CountingThreads(SystemThreads):
    """Real threads that record their use."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs_together: list[int] = []
        self.started = 0

    def together(self, jobs: Sequence[Callable[[], None]]) -> None:
        self.jobs_together.append(len(jobs))
        super().together(jobs)

    def start(self, name: str, body: Callable[[], None]):  # type: ignore[no-untyped-def]
        self.started += 1
        return super().start(name, body)


def workshop(memory_bytes_max: int = 1 << 20, threads: Threads | None = None, workers: int = 2) -> MergeResources:
    return MergeResources(threads or SystemThreads(), MemoryFiles(), "/shop", memory_bytes_max, workers)


def random_inputs(seed: int, entries: int, distinct: int, input_count: int = 3) -> list[Batches]:
    """Inputs of many batches; versions rise through all of them, so the last entry of a key is the newest."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, distinct, entries).tolist()
    created = [
        Entry(PUT, 1 + key % 2, b"key-%06d" % key, (1 + at // 50, at), b"value %d" % at, epoch=1 + at // 50)
        for at, key in enumerate(keys)
    ]
    batches = [created[at : at + 100] for at in range(0, entries, 100)]
    return [Batches(batches[number::input_count]) for number in range(input_count)]


def all_entries(inputs: Sequence[Batches]) -> Iterator[Entry]:
    return (entry for each in inputs for batch in each.lists for entry in batch)


@settings(deadline=None, max_examples=60)
@given(histories(), st.booleans(), st.integers(1, 3), st.integers(1, 5))
def test_so_11_all_plans_give_the_same(
    lists: list[list[Entry]], is_bottom: bool, workers: int, index_bytes: int
) -> None:
    """SO-11: put_only (SO-07) and update_to_max (SO-09), and the plan on disk with memory for a few entries."""
    inputs = [Batches([part[at : at + 3] for at in range(0, len(part), 3)]) for part in lists]
    shop = workshop(index_bytes * plans.ENTRY_INDEX_BYTES, workers=workers)
    shop.files.make_directories(shop.directory)
    by_put = entries_of(put_only(inputs, is_bottom, SystemThreads(), workers))
    assert by_put == entries_of(update_to_max(inputs, is_bottom))
    assert by_put == entries_of(external(inputs, is_bottom, shop))
    assert by_put == merged_by_hand(all_entries(inputs), is_bottom)
    assert shop.files.list(shop.directory) == []


def test_so_07_put_only_takes_everything_and_orders_once_by_key_and_version() -> None:
    """SO-07: nothing is looked up while it is put; the newest is found by order alone, in whatever order it came."""
    inputs = random_inputs(1, entries=3000, distinct=700)
    backwards = [Batches([batch[::-1] for batch in each.lists[::-1]]) for each in inputs[::-1]]
    expected = merged_by_hand(all_entries(inputs), is_bottom=True)
    assert entries_of(put_only(inputs, True, SystemThreads())) == expected
    assert entries_of(put_only(backwards, True, SystemThreads())) == expected


def test_so_08_put_only_works_with_several_threads() -> None:
    """SO-08: inputs are read, key ranges ordered and pieces gathered side by side."""
    threads = CountingThreads()
    inputs = random_inputs(2, entries=3000, distinct=700, input_count=4)
    found = entries_of(put_only(inputs, True, threads, worker_count=4))
    assert found == merged_by_hand(all_entries(inputs), is_bottom=True)
    assert threads.jobs_together == [4, 4], "four readers, then four key ranges"


def test_so_08_pieces_are_gathered_ahead_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """SO-08"""
    monkeypatch.setattr("warren.log.merge.pool._PIECE_ROWS", 64)
    threads = CountingThreads()
    inputs = random_inputs(3, entries=3000, distinct=700)
    batches = list(put_only(inputs, True, threads, worker_count=3))
    assert threads.started == 3
    assert len(batches) == 11
    assert entries_of(batches) == merged_by_hand(all_entries(inputs), is_bottom=True)


def test_the_plans_run_under_threads_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.log.merge.pool._PIECE_ROWS", 64)
    inputs = random_inputs(4, entries=1000, distinct=300)
    for seed in range(5):
        threads = SteppedThreads(seed)
        found = threads.run(lambda threads=threads: entries_of(put_only(inputs, True, threads, worker_count=3)))  # type: ignore[misc]
        assert found == merged_by_hand(all_entries(inputs), is_bottom=True)


def test_so_09_update_to_max_keeps_only_what_is_newer_than_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """SO-09: the fold happens while inputs come in, not at the end."""
    monkeypatch.setattr(plans, "_FOLD_COST_MIN", 1)
    folds: list[int] = []

    def counted(inputs: Sequence[EntryColumns], is_bottom: bool, clears: Clears) -> EntryColumns:
        folds.append((result := merge(inputs, is_bottom, clears)).count)
        return result

    monkeypatch.setattr(plans, "merge", counted)
    inputs = random_inputs(5, entries=3000, distinct=40)
    assert entries_of(update_to_max(inputs, True)) == merged_by_hand(all_entries(inputs), is_bottom=True)
    assert len(folds) > 9
    assert max(folds) == 40, "held is never more than one entry per key"


def test_so_10_update_to_max_works_in_the_callers_thread_alone() -> None:
    """SO-10: inputs are read one after another, each to its end, by the calling thread; no thread is started."""
    requested: list[str] = []
    readers: set[int] = set()

    @dataclass(frozen=True)
    class Watched(Batches):
        name: str = ""

        def batches(self) -> Iterator[EntryColumns]:
            for batch in self.lists:
                requested.append(self.name)
                readers.add(threading.get_ident())
                yield columns_of(batch)

    inputs = [Watched(each.lists, name=str(number)) for number, each in enumerate(random_inputs(6, 2000, 100))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda thread: pytest.fail(f"{thread.name} was started"))
        merged = entries_of(update_to_max(inputs, False))
    assert merged == merged_by_hand(all_entries(inputs), is_bottom=False)
    assert requested == sorted(requested)
    assert readers == {threading.get_ident()}


def test_so_03_the_working_directory_is_cleared_first() -> None:
    """SO-03: whatever an earlier merge left there is gone, also in directories below."""
    shop = workshop()
    for directory in ("/shop", "/shop/deep/er"):
        shop.files.make_directories(directory)
        shop.files.create(f"{directory}/spill-000000").write_at(0, [b"left over"])
    inputs = random_inputs(7, entries=500, distinct=100)
    assert entries_of(sorted_merge(inputs, True, shop)) == merged_by_hand(all_entries(inputs), is_bottom=True)
    assert shop.files.list("/shop") == []


def test_so_03_a_merge_on_disk_starts_from_an_empty_directory_and_leaves_one() -> None:
    """SO-03"""
    shop = workshop(memory_bytes_max=100 * plans.ENTRY_INDEX_BYTES)
    shop.files.make_directories("/shop")
    shop.files.create("/shop/spill-000000").write_at(0, [b"left over"])
    inputs = random_inputs(8, entries=2000, distinct=900)
    assert entries_of(sorted_merge(inputs, True, shop)) == merged_by_hand(all_entries(inputs), is_bottom=True)
    assert shop.files.list("/shop") == []


def test_so_04_only_the_inputs_that_are_named_are_merged() -> None:
    """SO-04: the targets are an explicit list, and what is not in it keeps its tombstones needed."""
    first, second, third = random_inputs(9, entries=900, distinct=100)
    found = entries_of(sorted_merge([first, third], False, workshop()))
    assert found == merged_by_hand(all_entries([first, third]), is_bottom=False)
    assert found != merged_by_hand(all_entries([first, second, third]), is_bottom=False)


def test_the_plan_is_chosen_by_what_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = random_inputs(10, entries=1000, distinct=100)
    need = memory_bytes_of(inputs)
    chosen: list[str] = []
    for name in ("put_only", "external"):
        monkeypatch.setattr(f"warren.log.merge.external.{name}", lambda *_, name=name: chosen.append(name))
    sorted_merge(inputs, True, workshop(need))
    sorted_merge(inputs, True, workshop(need - 1))
    unmapped = [Batches(each.lists, is_mapped=False) for each in inputs]
    sorted_merge(unmapped, True, workshop(need))
    assert chosen == ["put_only", "external", "external"]


def resident_of(call: Callable[[], int]) -> tuple[int, int]:
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wide_batch(number: int, rows: int, distinct: int) -> EntryColumns:
    """Entries of 8 + 16 bytes, made without a loop over rows."""
    random = np.random.default_rng(number)
    keys = random.integers(0, distinct, rows).astype(">u8").view(np.uint8)
    versions = NumberColumn.sequence(rows, number * rows)
    values = random.integers(0, 256, rows * 16, dtype=np.uint8)
    return EntryColumns(
        NumberColumn(rows, PUT), NumberColumn(rows, 1), NumberColumn(rows, number + 1), versions,
        Texts(keys, NumberColumn.sequence(rows + 1, 0, 8)), Texts(values, NumberColumn.sequence(rows + 1, 0, 16)),
        NumberColumn(rows, 0), NumberColumn(rows, 0), NumberColumn(rows, number + 1),
    )  # fmt: skip


@dataclass(frozen=True)
class WideInput:
    batch_count: int
    rows: int
    distinct: int
    is_mapped: bool = False

    @property
    def entries(self) -> int:
        return self.batch_count * self.rows

    @property
    def size_bytes(self) -> int:
        return self.entries * 24

    def batches(self) -> Iterator[EntryColumns]:
        return (wide_batch(number, self.rows, self.distinct) for number in range(self.batch_count))


@pytest.mark.slow
def test_memory_stays_within_the_setting_when_the_inputs_are_larger(tmp_path_factory: pytest.TempPathFactory) -> None:
    from warren.files.local import LocalFiles

    source = WideInput(batch_count=150, rows=10_000, distinct=1 << 40)
    memory_bytes_max = 48 << 20
    assert memory_bytes_of([source]) > 3 * memory_bytes_max
    directory = str(tmp_path_factory.mktemp("work"))
    shop = MergeResources(SystemThreads(), LocalFiles(), directory, memory_bytes_max)
    count, peak = resident_of(lambda: sum(batch.count for batch in sorted_merge([source], True, shop)))
    assert count == source.entries
    assert peak <= memory_bytes_max
    assert shop.files.list(directory) == []


@pytest.mark.slow
def test_put_only_needs_no_more_per_entry_than_declared() -> None:
    source = WideInput(batch_count=50, rows=20_000, distinct=800_000, is_mapped=True)
    pieces = list(source.batches())
    count, peak = resident_of(lambda: sum(1 for _ in put_only([_Held(pieces)], True, SystemThreads(), 1)))
    assert count > 0
    assert peak <= source.entries * plans.ENTRY_INDEX_BYTES


@dataclass(frozen=True)
class _Held:
    pieces: list[EntryColumns]
    is_mapped: bool = True
    entries: int = 0
    size_bytes: int = 0

    def batches(self) -> Iterator[EntryColumns]:
        return iter(self.pieces)


def test_a_fold_of_few_keys_needs_memory_for_few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_FOLD_COST_MIN", 1 << 20)
    source = WideInput(batch_count=200, rows=5_000, distinct=100)
    entries, peak = resident_of(lambda: sum(batch.count for batch in update_to_max([source], True)))
    assert entries == 100
    assert peak < 8 << 20 < source.size_bytes


@pytest.mark.parametrize("setting", ["_RANGES_MAX", "_SAMPLED_PER_RANGE"])
def test_a_range_that_is_still_too_large_is_split_again(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few ranges at once, or a sample that misses the narrow band in which nearly all different keys lie."""
    module = external_module if setting == "_RANGES_MAX" else sampling
    monkeypatch.setattr(module, setting, 3 if setting == "_RANGES_MAX" else 1)
    created = [Entry(PUT, 1, b"%03d" % (number % 7), (1, number), b"x") for number in range(20_000)]
    created += [Entry(PUT, 1, b"narrow-%09d" % (number * number), (2, number), b"y") for number in range(3000)]
    inputs = [Batches([created[at : at + 500] for at in range(0, len(created), 500)])]
    shop = workshop(memory_bytes_max=40 * plans.ENTRY_INDEX_BYTES)
    surveyed: list[int] = []
    survey = external_module._External._survey

    def watched(self: external_module._External, inputs: Sequence[Input]) -> list[tuple[int, bytes]]:
        surveyed.append(sum(each.entries for each in inputs))
        return survey(self, inputs)

    monkeypatch.setattr(external_module._External, "_survey", watched)
    assert entries_of(sorted_merge(inputs, True, shop)) == merged_by_hand(created, is_bottom=True)
    assert len(surveyed) > 1
    assert sum(surveyed) < 4 * len(created), "each level deals only what was too large, so the cost stays linear"
    assert shop.files.list("/shop") == []


def test_long_keys_are_sampled_within_memory_and_split_all_the_same() -> None:
    created = [Entry(PUT, 1, b"%04d" % (number * 7919 % 10_000) * 500, (1, number), b"v") for number in range(600)]
    inputs = [Batches([created[at : at + 10] for at in range(0, len(created), 10)])]
    memory_bytes_max = 200 * plans.ENTRY_INDEX_BYTES
    sample = sampling.Sample(len(created), 8, memory_bytes_max // 8)
    for batch in inputs[0].batches():
        sample.add(batch)
        assert sample._bytes <= max(memory_bytes_max // 8, 5 * 2000)
    assert 2 <= len(sample.bounds()) < 8
    shop = workshop(memory_bytes_max)
    assert entries_of(sorted_merge(inputs, True, shop)) == merged_by_hand(created, is_bottom=True)


def test_a_single_hot_key_larger_than_memory_collapses() -> None:
    created = [Entry(PUT, 1, b"hot", (1, number), bytes([number % 251]) * 50) for number in range(5000)]
    inputs = [Batches([created[at : at + 20] for at in range(0, len(created), 20)])]
    shop = workshop(memory_bytes_max=40 * plans.ENTRY_INDEX_BYTES)
    assert entries_of(sorted_merge(inputs, True, shop)) == [created[-1]]


def test_clears_reach_every_range_of_a_merge_on_disk() -> None:
    created = [Entry(PUT, 1, b"%05d" % number, (1, number), b"old") for number in range(2000)]
    clear, add = Entry(EntryKind.CLEAR_STORAGE, 1, b"", (2, 0)), Entry(EntryKind.ADD_STORAGE, 1, b"", (2, 1))
    created += [clear, add, Entry(PUT, 1, b"01000", (3, 0), b"new")]
    inputs = [Batches([created[at : at + 50] for at in range(0, len(created), 50)])]
    shop = workshop(memory_bytes_max=100 * plans.ENTRY_INDEX_BYTES)
    assert entries_of(sorted_merge(inputs, True, shop)) == [add, created[-1]]
    assert entries_of(sorted_merge(inputs, False, shop)) == [clear, add, created[-1]]


def test_a_reader_that_stops_leaves_no_spill_and_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warren.log.merge.pool._PIECE_ROWS", 16)
    shop = workshop(memory_bytes_max=200 * plans.ENTRY_INDEX_BYTES)
    found = sorted_merge(random_inputs(12, entries=3000, distinct=2000), True, shop)
    assert next(found).count > 0
    assert isinstance(found, Generator)
    found.close()
    assert shop.files.list("/shop") == []


def test_a_full_disk_under_the_spills_is_reported_and_cleaned_up() -> None:
    shop = workshop(memory_bytes_max=100 * plans.ENTRY_INDEX_BYTES)
    assert isinstance(shop.files, MemoryFiles)
    shop.files.capacity_bytes = 10_000
    with pytest.raises(OutOfRoom):
        entries_of(sorted_merge(random_inputs(13, entries=3000, distinct=2000), True, shop))
    assert shop.files.list("/shop") == []


def test_an_error_in_an_input_comes_out_of_every_plan() -> None:
    class Broken(Batches):
        def batches(self) -> Iterator[EntryColumns]:
            yield from list(super().batches())[:1]
            raise Damage("a block is broken", "/log/7", 4096)

    inputs = [*random_inputs(14, 500, 100), Broken(random_inputs(15, 500, 100)[0].lists)]
    small = workshop(memory_bytes_max=100 * plans.ENTRY_INDEX_BYTES)
    small.files.make_directories("/shop")
    plans_to_try: list[Callable[[], Iterator[EntryColumns]]] = [
        lambda: put_only(inputs, True, SystemThreads()),
        lambda: update_to_max(inputs, True),
        lambda: external(inputs, True, small),
    ]
    for plan in plans_to_try:
        with pytest.raises(Damage, match="/log/7"):
            entries_of(plan())


def test_a_spill_that_is_damaged_on_disk_is_found() -> None:
    shop = workshop(memory_bytes_max=100 * plans.ENTRY_INDEX_BYTES)
    found = sorted_merge(random_inputs(16, entries=3000, distinct=2000), True, shop)
    next(found)
    last = shop.files.list("/shop")[-1]
    shop.files.open(f"/shop/{last}", writable=True).write_at(200, [b"\xff\xff\xff"])
    with pytest.raises(Damage, match=last):
        entries_of(found)


def test_no_inputs_and_empty_inputs_are_fine() -> None:
    for inputs in ([], [Batches([])], [Batches([[]])]):
        assert entries_of(sorted_merge(inputs, True, workshop())) == []
        assert entries_of(update_to_max(inputs, True)) == []


def test_an_unusable_working_directory_is_refused() -> None:
    shop = workshop()
    shop.files.create("/shop").close()
    with pytest.raises(Refused):
        sorted_merge([], True, shop)
