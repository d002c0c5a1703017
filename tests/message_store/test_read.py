"""Reading contents: by the location in the run, without the store."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import QUIET
from tests.message_store.store_stage import CHUNK_BYTES, A, B, StoreStage, content, file_of, stored_of
from warren.base.errors import Damage, Misuse
from warren.base.ids import QueueId, SequenceId
from warren.base.messages import Publication, Run
from warren.base.threads import SystemThreads
from warren.log.store import LogStore
from warren.message_store.body_files import LogBodyFiles
from warren.message_store.body_format import Reference, encode_stored
from warren.message_store.index import MemoryIndex
from warren.message_store.read import BodyReader, write_units
from warren.records.format import ENTRY_BYTES_MAX

MIB = 1 << 20


def damage(stage: StoreStage, run: Run, unit: int = 0, piece: int = 0) -> tuple[str, int]:
    """One bit of one record; where."""
    place = stored_of(run).units[unit].places[piece]
    path = stage.stores._body_files[0].path(place.file)
    file = stage.stage.disk.open(path, writable=True)
    was = file.read_at(place.offset + 200, 1)
    file.write_at(place.offset + 200, [bytes([was[0] ^ 4])])
    file.close()
    return path, place.offset


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2600), min_size=1, max_size=12), st.data())
def test_every_part_of_a_run_is_read_as_it_was_written(sizes: list[int], data: st.DataObject) -> None:
    stage = StoreStage()
    contents = [content(n, size) for n, size in enumerate(sizes)]
    run = stage.publish(contents, A)[A]
    if data.draw(st.booleans()):
        stage.seal()
    start = data.draw(st.integers(0, len(sizes)))
    stop = data.draw(st.integers(start, len(sizes)))
    assert stage.contents(run, start, stop) == contents[start:stop]
    stage.close()


def test_readers_read_the_files_in_their_own_thread_and_take_no_lock_of_the_store() -> None:
    """MS-06, MS-07: while a writer holds the store's lock and the collector its own; every block is read by the
    reader's thread, not by the store's owner and not from a cache."""
    stage = StoreStage(read_cache_bytes=0)
    run = stage.publish([content(1), content(2)], A, B)[A]
    stage.seal()
    blocks = stage.stores._body_files[0]._reader
    before, readers = blocks.reads, list[str]()
    read: list[list[bytes]] = []
    with pytest.MonkeyPatch.context() as patch, stage.store._lock, stage.stores.collector._lock:
        real = LogBodyFiles.read

        def noted(body_files: LogBodyFiles, *arguments: Any, **named: Any) -> memoryview:
            readers.append(threading.current_thread().name)
            return real(body_files, *arguments, **named)

        patch.setattr(LogBodyFiles, "read", noted)
        reader = SystemThreads().start("reader", lambda: read.append(stage.contents(run)))
        reader.join(20)
    assert read == [[content(1), content(2)]]
    assert set(readers) == {"reader"} and blocks.reads > before
    written: list[Run] = []
    with stage.store._lock:
        writer = SystemThreads().start("writer", lambda: written.append(stage.publish([content(3)], A)[A]))
        writer.join(0.05)
        assert writer.is_alive(), "writing does pass the store"
    writer.join()
    assert stage.contents(written[0]) == [content(3)]


def test_of_a_large_content_only_the_wanted_chunks_are_read() -> None:
    stage = StoreStage(read_cache_bytes=0)
    contents = [content(n, 300) for n in range(9)]
    run = stage.publish([*contents, content(77, 10 * CHUNK_BYTES)], A)[A]
    reader = stage.stores._body_files[0]._reader
    before = reader.reads
    assert stage.contents(run, 4, 5) == [contents[4]]
    assert reader.reads - before == 1
    before = reader.reads
    assert stage.contents(run, 9, 10) == [content(77, 10 * CHUNK_BYTES)]
    assert reader.reads - before == 10


def test_contents_can_be_read_before_they_are_written() -> None:
    stage = StoreStage()
    batch = stage.queues.begin()
    run = stage.submit(Publication([content(1), content(2, 4000)]), A, batch)
    batch.end()
    assert stage.contents(run) == [content(1), content(2, 4000)]


def test_damage_names_file_offset_and_what_it_hits_and_other_units_are_served() -> None:
    stage = StoreStage(chunk_bytes=70_000, read_cache_bytes=0)
    run = stage.publish([content(0, 90_000), content(1, 190_000), content(2, 90_000)], A)[A]
    stage.seal()
    path, offset = damage(stage, run, unit=1, piece=1)
    with pytest.raises(Damage, match=r"messages 1 … 1 of a run \(unit 0x") as caught:
        stage.contents(run, 0, 3)
    assert (caught.value.path, caught.value.offset) == (path, offset)
    assert stage.contents(run, 0, 1) == [content(0, 90_000)]
    assert stage.contents(run, 2, 3) == [content(2, 90_000)]


def test_words_that_do_not_fit_the_run_are_damage_and_nothing_is_served() -> None:
    stage = StoreStage()
    run = stage.publish([content(1), content(2)], A)[A]
    with pytest.raises(Damage, match="the store has 800"):
        stage.store.read(run.stored, np.array([400, 401], dtype=np.uint32), 0, 2)
    with pytest.raises(Misuse, match="2 of them are stored"):
        stage.store.read(run.stored, 400, 0, 3)
    (unit,) = stored_of(run).units
    with pytest.raises(Damage, match="1 records, 2 are listed"):
        stage.store.read(encode_stored([unit._replace(places=unit.places * 2)], CHUNK_BYTES), 400, 0, 2)


def test_contents_whose_file_is_gone_and_that_were_not_moved_are_reported_as_lost() -> None:
    stage = StoreStage()
    run = stage.publish([content(1)], A)[A]
    stage.seal()
    stage.stores._body_files[0].release([file_of(run)])
    stage.log.purge()
    with pytest.raises(Damage, match="is gone"):
        stage.contents(run)


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_body_above_the_entry_limit_is_stored_in_chunks_with_bounded_memory(tmp_path: Path) -> None:
    """X-05, C-18, LC-02: the limit of an entry is no limit of a message. Beside the body there is never a second one
    in memory; the log's own buffers are all."""
    body = np.arange(5 * MIB, dtype=np.uint64).tobytes()  # 40 MiB
    assert len(body) > 30 * ENTRY_BYTES_MAX
    holder = Reference(QueueId(1), 0, SequenceId(0))
    with LogStore.open(str(tmp_path), QUIET) as log:
        body_files = LogBodyFiles(log, 4 * MIB)
        reader = BodyReader(body_files, MemoryIndex(SystemThreads().condition()))
        stored: list[bytes] = []
        written = peak_of(lambda: stored.append(encode_stored(write_units(body_files, [body], len(body), [holder]))))
        assert written < 24 * MIB
        found: list[bytes] = []
        read = peak_of(lambda: found.extend(reader.read(stored[0], len(body), 0, 1)))
        assert read < 1.35 * len(body) + 2 * MIB, "once, and a chunk"
        assert found == [body]
        body_files.close()


def test_the_place_of_contents_travels_in_the_run() -> None:
    """MS-11: the run alone is enough, without this process's memory."""
    stage = StoreStage()
    runs = stage.publish([content(1), content(2, 3500)], A, B)
    stage.reopen()
    for place in (A, B):
        ((run, gone),) = stage.recovered(place)
        assert (run.stored, gone) == (runs[place].stored, 0)
        assert stage.contents(run) == [content(1), content(2, 3500)]
    assert stage.store.facts()["entries"] == 0
