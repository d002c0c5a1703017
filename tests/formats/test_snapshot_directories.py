"""A safe snapshot store, a version buffer and a whole database, written by any version, are read today.

`make golden` makes the archive of the present version if there is none; one that is there is never made again.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

import warren
from tests.formats.make_snapshot import ARCHIVE, DATABASE, LOG, REFLECTION, TIMELINE, main
from tests.house.source_tree import DOCS
from tests.log.merge_model import Entry, entries_of
from tests.log.test_bad_input import newer_block
from tests.snapshot.version_buffer.test_buffer_file import SHOWN, bytes_shown
from tests.snapshot.version_buffer_suite import emptied
from warren.base.environment import SystemRandom
from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch
from warren.base.threads import SystemThreads
from warren.files.local import LocalFiles
from warren.log.settings import EntryKind
from warren.snapshot.rocksdb.options import SnapshotStoreSettings, store_options
from warren.snapshot.rocksdb.row_format import MARK_KEY, mark_of
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.version_buffer.memory_buffer import MemoryBuffer
from warren.snapshot.version_buffer.rocksdb_buffer import FAMILY, family_options, open_buffer

ARCHIVES = sorted(ARCHIVE.parent.glob("snapshot_v*.tar.xz"))
PAGE = DOCS / "formats" / "snapshot_store.md"
GRAVE_OF_GONE = bytes.fromhex("04 00 00 00 00 00 00 00 03") + b"gone"


@pytest.fixture(params=ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


@contextmanager
def raw(directory: Path) -> Iterator[Rdict]:
    """What is in a store, as RocksDB has it."""
    db = Rdict(str(directory), store_options(SnapshotStoreSettings()))
    try:
        yield db
    finally:
        db.close()


def make_newer(directory: Path) -> bytes:
    """Give a store the next format's number; the mark as it was."""
    with raw(directory) as db:
        mark: Any = db.get(MARK_KEY)
        db.put(MARK_KEY, (mark[0] + 1).to_bytes(4, "little") + mark[4:])
    return bytes(mark)


def test_the_present_version_has_its_golden_archive_of_the_snapshot_store() -> None:
    if os.environ.get("WARREN_GOLDEN") == "rewrite" and not ARCHIVE.exists():
        main()
    assert ARCHIVE.exists()


def test_a_golden_store_opens_with_its_contents(golden: Path) -> None:
    for _ in range(2):  # and once more, from what the first opening made of it
        store = RocksDbStore.open(str(golden / "store"), TIMELINE)
        assert store.applied == (TIMELINE, 0x123456, (0x123456, 7))
        assert store.counter(b"ready") == b"2"
        assert entries_of(store.batches()) == [
            Entry(EntryKind.PUT, 3, b"ant", (0x123456, 7), b"six legs", epoch=0x123456),
            Entry(EntryKind.PUT, 4, b"bee", (5, 300), b"wings", epoch=9),
        ]
        store.close()


def test_the_bytes_of_a_golden_store_are_those_of_the_page(golden: Path) -> None:
    ant, bee, cleared, mark = shown_pairs()
    with raw(golden / "store") as db:
        found: dict[Any, Any] = dict(db.items())
    storage_4 = bytes.fromhex("02 00 00 00 00 00 00 00 04")
    assert found == dict([ant, cleared, mark, (storage_4 + b"bee", bee[1]), (b"\1ready", b"2")])


def shown_pairs() -> list[tuple[bytes, bytes]]:
    """The keys and values of the page's worked bytes, in its order; `bee` is shown without its key."""
    text = PAGE.read_text(encoding="utf-8").partition("## Worked bytes")[2]
    lines = [line for fence in text.split("```")[1::2] for line in fence.strip("\n").splitlines()]
    pairs: list[tuple[bytes, bytes]] = []
    name, key, value = "", b"", b""
    for line in [*lines, "key"]:
        found = re.match(r"(key|value|)\s*((?:[0-9a-f]{2} {1,2})*[0-9a-f]{0,2})(?: {2}|$)", line)
        assert found is not None, line
        name = found[1] or name
        if found[1] and value:
            pairs.append((key, value))
            key, value = b"", b""
        part = bytes.fromhex(found[2])
        key, value = (key + part, value) if name == "key" else (key, value + part)
    return pairs


def test_a_golden_store_that_holds_entries_beyond_its_mark_continues(golden: Path) -> None:
    """What it was offered before changes nothing, and its graves go when the mark has caught up."""
    with raw(golden / "unsettled") as db:
        mark: Any = db.get(MARK_KEY)
        assert (mark_of(mark).highest_epoch, GRAVE_OF_GONE in db) == (7, True)
    store = RocksDbStore.open(str(golden / "unsettled"), TIMELINE)
    assert (store.applied.epoch, store.applied.version) == (2, (3, 1))
    assert [(row.key, row.value) for row in store.range(3)] == [(b"stays", b"from a table")]
    store.apply([], store.applied._replace(epoch=Epoch(7)))
    store.close()
    with raw(golden / "unsettled") as db:
        assert GRAVE_OF_GONE not in db


def test_a_golden_buffer_is_taken_over_and_its_bytes_are_those_of_the_page(golden: Path) -> None:
    path = golden / "buffer" / "buffer-0000000000000022"
    assert path.read_bytes() == bytes_shown("A buffer file")
    assert emptied(adopted(path)) == SHOWN


def test_a_golden_column_family_is_taken_over_and_its_bytes_are_those_of_the_page(golden: Path) -> None:
    db = Rdict(str(golden / "family"), store_options(SnapshotStoreSettings()), {FAMILY: family_options()})
    rows: list[Any] = list(db.get_column_family(FAMILY).items())
    db.close()
    assert b"".join(rows[0]) == bytes_shown("A row of RocksDB")
    buffer = open_buffer(str(golden / "family"), SystemThreads(), is_restored=True)
    assert emptied(buffer) == SHOWN
    buffer.close()


def test_a_golden_database_opens_with_what_was_acknowledged(golden: Path) -> None:
    """Part of it is in its store only, and part in its log only."""
    for _ in range(2):
        with warren.open(str(golden / "database"), log_settings=LOG, reflection=REFLECTION) as db:
            assert db.database.log.manifest.state.horizon > 0
            assert {name: dict(db.kv(name)) for name in db.names()} == DATABASE
            assert not db.alarms()


# -- newer ones ------------------------------------------------------------------------------------------------------


def test_a_golden_store_of_the_next_format_is_refused_by_name(golden: Path) -> None:
    make_newer(golden / "store")
    with pytest.raises(Refused, match="has format 2; this version knows 1") as refused:
        RocksDbStore.open(str(golden / "store"), TIMELINE)
    assert str(golden / "store") in refused.value.what
    assert "newer warren" in refused.value.hint


def test_a_golden_buffer_file_of_the_next_format_is_refused_by_name(golden: Path) -> None:
    path = golden / "buffer" / "buffer-0000000000000022"
    content = bytearray(path.read_bytes())
    newer_block(0)(content)
    path.write_bytes(content)
    with pytest.raises(Refused, match="format 2") as refused:
        adopted(path)
    assert path.name in refused.value.what and "newer warren" in refused.value.hint


def test_a_golden_database_whose_store_alone_has_the_rows_is_refused_if_that_is_newer_and_nothing_is_touched(
    golden: Path,
) -> None:
    store = golden / "database" / "store"
    mark = make_newer(store)
    for _ in range(2):
        with pytest.raises(Damage, match=r"cannot be used: .* has format 2; this version knows 1") as refused:
            warren.open(str(golden / "database"), log_settings=LOG)
        assert "is nowhere else: use the version of warren that wrote it" in refused.value.hint
    assert list((golden / "database" / "set-aside").iterdir()) == []
    with raw(store) as db:
        db.put(MARK_KEY, mark)
    with warren.open(str(golden / "database"), log_settings=LOG) as opened:
        assert {name: dict(opened.kv(name)) for name in opened.names()} == DATABASE


def test_a_store_of_the_next_format_is_set_aside_and_built_again_while_the_log_has_everything(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        db.kv("users").put_many({b"ada": b"countess", b"alan": b"baker"})
    make_newer(tmp_path / "store")
    with warren.open(str(tmp_path)) as db:
        assert dict(db.kv("users")) == {b"ada": b"countess", b"alan": b"baker"}
        [alarm] = db.alarms()
        assert "set aside and is rebuilt" in alarm and "has format 2" in alarm
        [aside] = (tmp_path / "set-aside").iterdir()
    with raw(aside) as old:
        keys: list[Any] = list(old.keys())
        assert len([key for key in keys if key[:1] == b"\2"]) == 3, "nothing of it was deleted"
    with warren.open(str(tmp_path)) as db:
        assert not db.alarms()


def adopted(path: Path) -> MemoryBuffer:
    return MemoryBuffer(LocalFiles(), SystemThreads(), SystemRandom(), str(path.parent), TIMELINE, adopted=[str(path)])
