"""The buffer in RocksDB: a column family of its own, one row for each entry, nothing deleted under an iterator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from tests.log.merge_model import Entry, columns_of
from tests.snapshot.version_buffer_suite import all_of, emptied, put
from warren.base.errors import Damage, WarrenError
from warren.base.ids import ChannelId
from warren.base.threads import SystemThreads
from warren.log.settings import EntryKind
from warren.snapshot.version_buffer.rocksdb_buffer import (
    FAMILY,
    HEAD,
    KEY,
    RocksdbBuffer,
    entries_of_rows,
    family_options,
    open_buffer,
)

A, B = ChannelId(0), ChannelId(1)


def database_at(path: Path) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    return Rdict(str(path), options, {FAMILY: family_options(64 << 10)})


def test_vb_04_it_lives_in_a_column_family_of_its_own(tmp_path: Path) -> None:
    database = database_at(tmp_path / "store")
    database.put(b"\0" * 28, b"the store's")
    buffer = RocksdbBuffer(database, SystemThreads())
    buffer.add(A, 0, columns_of([put((1, 1))]))
    assert FAMILY in Rdict.list_cf(str(tmp_path / "store"))
    assert [key for key, _ in database.items()] == [b"\0" * 28]
    assert emptied(buffer) == [put((1, 1))]
    buffer.close()
    assert database.get(b"\0" * 28) == b"the store's"
    database.close()


def test_vb_05_vb_07_a_row_is_version_channel_record_to_epoch_and_payload(tmp_path: Path) -> None:
    database = database_at(tmp_path / "store")
    buffer = RocksdbBuffer(database, SystemThreads())
    entries = [
        Entry(EntryKind.PUT, 3, b"ant", (4, 7), b"six", epoch=5, undo=(8, 9)),
        Entry(EntryKind.REMOVE, 3, b"bee", (4, 7), epoch=6),
    ]
    buffer.add(B, 40, columns_of(entries))
    rows: list[Any] = list(database.get_column_family(FAMILY).items())
    assert [KEY.unpack(key) for key, _ in rows] == [(4, 7, 1, 40), (4, 7, 1, 41)]
    assert [HEAD.unpack(value[: HEAD.size]) for _, value in rows] == [(5, 1, 3, 8, 9, 3), (6, 2, 3, 0, 0, 3)]
    assert [value[HEAD.size :] for _, value in rows] == [b"antsix", b"bee"]


def test_vb_08_vb_09_a_range_is_read_by_one_iterator_after_another_and_deleted_when_all_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = RocksdbBuffer(database_at(tmp_path / "store"), SystemThreads(), batch_bytes=500)
    entries = [put((1, n), b"%d" % n) for n in range(200)]
    buffer.add(A, 0, columns_of(entries))
    starts: list[bytes] = []
    original = buffer.read

    def watched(start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        starts.append(start)
        return original(start, stop)

    monkeypatch.setattr(buffer, "read", watched)
    taken = buffer.take((1, 150))
    assert all_of(taken) == entries[:151]
    assert len(starts) > 5 and starts == sorted(set(starts))
    assert buffer.entries == 200
    assert all_of(taken) == entries[:151], "read to the end, and nothing is deleted yet"
    taken.done()
    assert buffer.entries == 49 and emptied(buffer) == entries[151:]


def test_vb_10_flushing_persists_it_and_without_flushing_nothing_is_on_disk(tmp_path: Path) -> None:
    """VB-10: RocksDB's own log is off, so what was not flushed is nowhere but in memory."""
    path = str(tmp_path / "alone")
    buffer = open_buffer(path, SystemThreads(), memtable_bytes=64 << 20)
    buffer.add(A, 0, columns_of([put((1, n), b"%d" % n) for n in range(100)]))
    assert _copied(tmp_path, "before").entries == 0
    files = buffer.persist()
    assert files and all(Path(file).exists() for file in files)
    buffer.add(A, 100, columns_of([put((2, 0))]))
    assert emptied(_copied(tmp_path, "after")) == [put((1, n), b"%d" % n) for n in range(100)]
    buffer.close()


def _copied(tmp_path: Path, name: str) -> RocksdbBuffer:
    """What `kill -9` would leave now, opened for a restore."""
    (tmp_path / name).mkdir()
    for file in (tmp_path / "alone").iterdir():
        if file.name != "LOCK":
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    return open_buffer(str(tmp_path / name), SystemThreads(), is_restored=True)


def test_vb_11_vb_12_the_memtable_is_small_and_compaction_is_leveled(tmp_path: Path) -> None:
    buffer = open_buffer(str(tmp_path / "alone"), SystemThreads())
    buffer.close()
    newest = max((tmp_path / "alone").glob("OPTIONS-*"))
    options = newest.read_text(encoding="utf-8").partition(f'[CFOptions "{FAMILY}"]')[2].partition("[")[0]
    found = dict(line.strip().split("=", 1) for line in options.splitlines() if "=" in line)
    assert int(found["write_buffer_size"]) <= 8 << 20
    assert found["compaction_style"] == "kCompactionStyleLevel"


def test_a_memtable_that_is_full_leaves_memory(tmp_path: Path) -> None:
    buffer = open_buffer(str(tmp_path / "alone"), SystemThreads(), memtable_bytes=1 << 20)
    for record in range(0, 10_000, 100):
        buffer.add(A, record, columns_of([put((record, n), b"k", b"v" * 1000) for n in range(100)]))
    assert buffer.memory_bytes < 5 << 20 and buffer.entries == 10_000
    assert len(emptied(buffer)) == 10_000
    buffer.close()


def test_it_can_be_opened_again_after_it_was_closed(tmp_path: Path) -> None:
    for _ in range(3):
        buffer = open_buffer(str(tmp_path / "alone"), SystemThreads())
        assert buffer.entries == 0 and emptied(buffer) == []
        buffer.add(A, 0, columns_of([put((1, 1))]))
        buffer.persist()
        buffer.close()


def test_errors_of_rocksdb_are_translated(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(WarrenError, match="cannot open the version buffer") as found:
        open_buffer(str(tmp_path / "file"), SystemThreads())
    assert found.value.hint
    buffer = open_buffer(str(tmp_path / "alone"), SystemThreads())
    buffer.close()
    with pytest.raises(WarrenError, match="cannot add to the version buffer"):
        buffer.add(A, 0, columns_of([put((1, 1))]))


def test_a_row_that_is_too_short_is_damage() -> None:
    good = HEAD.pack(1, 1, 1, 0, 0, 2)
    for value in (b"", good[:-1], good, good + b"k"):
        with pytest.raises(Damage):
            entries_of_rows([KEY.pack(1, 1, 0, 0)], [value])
    assert entries_of_rows([KEY.pack(1, 1, 0, 0)], [good + b"ky"]).keys.to_list() == [b"ky"]
