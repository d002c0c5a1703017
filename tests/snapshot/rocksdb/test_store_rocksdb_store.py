"""What only the RocksDB store can show: what it finds when opened, damage, a disk that is full, memory."""

from __future__ import annotations

import random
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakSet

import pytest
from rocksdict import Options, Rdict

from tests.snapshot.snapshot_store_suite import QUICK_PLACE, SMALL, TIMELINE, apply, held_by, mark, put, remove
from warren.base.errors import Damage, DiskFailure, Locked, Misuse, OutOfRoom, Refused
from warren.snapshot.rocksdb import store as rocksdb_store
from warren.snapshot.rocksdb.options import SnapshotStoreSettings
from warren.snapshot.rocksdb.read import close_all
from warren.snapshot.rocksdb.row_format import BEHIND_ALL, GRAVE, MARK_KEY
from warren.snapshot.rocksdb.store import RocksDbStore


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        yield Path(place) / "store"


def opened(directory: Path, settings: SnapshotStoreSettings = SMALL) -> RocksDbStore:
    return RocksDbStore.open(str(directory), TIMELINE, settings)


def raw(directory: Path) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    return Rdict(str(directory), options)


def fill(store: RocksDbStore, rows: int, value_bytes: int = 100, seed: int = 1) -> None:
    """A batch of rows under random keys."""
    rng = random.Random(seed)
    first = store.applied.version[1]
    entries = (put((1, first + n), rng.randbytes(16), rng.randbytes(value_bytes)) for n in range(rows))
    apply(store, *entries, at=mark(1, (1, first + rows)))


def test_ss_01_everything_is_in_the_default_column_family_of_a_rocksdb(directory: Path) -> None:
    """SS-01: rows and mark are in one family, so that no flush can bring one to disk without the other."""
    store = opened(directory)
    apply(store, put((1, 1), b"a"))
    store.close()
    assert Rdict.list_cf(str(directory)) == ["default"]
    db = raw(directory)
    assert [bytes(key)[:1] for key, _ in db.items()] == [MARK_KEY, b"\x02"]  # type: ignore[arg-type]
    db.close()


def test_what_is_not_a_directory_is_refused(directory: Path) -> None:
    directory.write_text("a file")
    with pytest.raises(Refused, match="cannot open the snapshot store"):
        opened(directory)
    with pytest.raises(Refused, match="cannot open the snapshot store"):
        opened(directory / "below")


def test_a_store_that_is_open_is_not_opened_again(directory: Path) -> None:
    store = opened(directory)
    with pytest.raises(Locked):
        opened(directory)
    store.close()
    store.close()
    with pytest.raises(Misuse, match="closed"):
        store.get(3, b"k")
    opened(directory).close()


def test_a_store_closes_under_views_and_ranges_that_are_held(directory: Path) -> None:
    store = opened(directory)
    apply(store, *(put((1, n), b"%d" % n) for n in range(9)))
    view, range_of_store = store.view(), store.range(3)
    range_of_view = view.range(3)
    assert next(range_of_store) == next(range_of_view)
    store.close()
    opened(directory).close()
    for rows in (range_of_store, range_of_view):
        with pytest.raises(Misuse, match="closed"):
            list(rows)


def test_a_newer_format_is_refused_by_name(directory: Path) -> None:
    store = opened(directory)
    apply(store, put((1, 1)))
    store.close()
    db = raw(directory)
    db[MARK_KEY] = b"\x02\0\0\0 whatever comes then"
    db.close()
    with pytest.raises(Refused, match="format 2; this version knows 1"):
        opened(directory)


def test_a_foreign_database_is_no_snapshot_store(directory: Path) -> None:
    db = raw(directory)
    db[b"\x02somebody"] = b"else's"
    db.close()
    with pytest.raises(Damage, match="rows and no mark"):
        opened(directory)


def test_damage_in_a_file_is_reported_by_every_read_of_it(directory: Path) -> None:
    """Above all by ranges: RocksDB's iterators end at a damaged block as if there were nothing behind it."""
    store = opened(directory)
    fill(store, 3000)
    keys = [row.key for row in store.range(3)]
    assert len(keys) == 3000
    store.close()
    for path in directory.glob("*.sst"):
        data = bytearray(path.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 64] = bytes(64)
        path.write_bytes(data)
    store = opened(directory)
    with pytest.raises(Damage, match=r"\.sst"):
        list(store.range(3))
    with pytest.raises(Damage):
        list(store.range(3, reverse=True))
    with pytest.raises(Damage):
        held_by(store)
    with pytest.raises(Damage):
        store.get_many(3, keys)
    with closing(store.view()) as view, pytest.raises(Damage):
        view.get_many(3, keys)
    store.close()


def test_a_store_without_its_manifest_is_damage_with_a_hint(directory: Path) -> None:
    store = opened(directory)
    apply(store, put((1, 1)))
    store.close()
    for path in directory.glob("MANIFEST-*"):
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(Damage, match="hint: "):
        opened(directory)


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """A disk on which no file can grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_after_an_error_of_the_disk_nothing_is_taken_until_it_is_resumed(directory: Path) -> None:
    store = opened(directory)
    apply(store, put((1, 1), b"first"))
    store.flush()
    view = store.view()
    with file_size_limit(100_000):
        apply(store, put((2, 1), b"large", random.Random(1).randbytes(200_000)))
        with pytest.raises(OutOfRoom, match="File too large"):
            store.flush()
        assert store.failure
        with pytest.raises(DiskFailure, match="accepts no writes"):
            apply(store, put((40, 1)))
        assert store.get(3, b"first") == (b"v", (1, 1)), "reads continue"
        with pytest.raises((OutOfRoom, DiskFailure), match=r"room\.probe"):
            store.resume()
        assert view.get(3, b"first") == (b"v", (1, 1)), "and no view is closed for a failed attempt"
    store.resume()
    assert not store.failure and not (directory / "room.probe").exists()
    assert store.applied == mark(1, (1, 1)), "back at what was on disk"
    with pytest.raises(Misuse, match="closed"):
        view.get(3, b"first")
    apply(store, put((2, 1), b"2"))
    assert store.flush() == mark(2, (2, 1))
    store.close()
    store = opened(directory)
    assert [row.key for row in store.range(3)] == [b"2", b"first"]
    store.close()


def test_graves_are_kept_only_while_something_may_come_again(directory: Path) -> None:
    store = opened(directory)
    apply(store, put((1, 1), b"a"), remove((1, 2), b"a"))
    assert not graves_in(store), "the usual case leaves none"
    apply(store, remove((2, 1), b"b", epoch=5), at=mark(2, (2, 1)))
    assert len(graves_in(store)) == 1
    store.close()
    store = opened(directory)
    apply(store, at=mark(5, (3, 0)))
    assert not graves_in(store)
    store.close()


def graves_in(store: RocksDbStore) -> list[bytes]:
    return [key for pairs in store.raw_pieces(GRAVE, BEHIND_ALL, False, 9) for key, _ in pairs]


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_store(directory: Path) -> None:
    """300,000 rows of 200 bytes, 60 MB, applied, read by key and from end to end with about 10 MB for it all."""
    settings = SnapshotStoreSettings(write_buffer_bytes=2 << 20, block_cache_bytes=4 << 20)
    store = opened(directory, settings)
    fill(store, 10_000, 200, seed=0)
    before = rss_bytes()
    for seed in range(1, 30):
        fill(store, 10_000, 200, seed)
    assert sum(batch.count for batch in store.batches()) == 300_000
    assert sum(1 for _ in store.range(3, reverse=True)) == 300_000
    grown = rss_bytes() - before
    store.close()
    assert grown < 40 << 20


def test_a_store_whose_files_are_not_sorted_in_says_that_it_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDbStore.open(str(tmp_path / "store"), TIMELINE)
    apply(store, put((1, 0), b"a", b"1"))
    behind = [store.is_behind]
    store.flush()
    monkeypatch.setattr(rocksdb_store, "FILES_BEHIND", 1)
    behind.append(store.is_behind)
    store.compact()
    behind.append(store.is_behind)
    assert behind == [False, True, False]
    store.close()


def test_figures_of_a_database_that_is_closed_under_the_store_are_errors_of_ours(directory: Path) -> None:
    store = opened(directory)
    store._rocksdb.close()
    for ask in (lambda: store.size_bytes, lambda: store.is_behind, lambda: store.failure, store.tidy, store._load_mark):
        with pytest.raises(Misuse, match="it is closed"):
            ask()


def test_views_that_are_opened_while_all_are_closed_do_not_break_that() -> None:
    """Several threads read while reflection opens a broken store anew."""

    class Handle:
        def close(self) -> None:
            closed.append(1)

    closed, created, is_over = list[int](), list[Handle](), threading.Event()
    handles: WeakSet[Handle] = WeakSet()

    def add() -> None:
        while not is_over.is_set():
            created.append(Handle())
            handles.add(created[-1])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(20):
            while len(handles) < 500:  # enough for others to come between
                continue
            close_all(handles)
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)
    close_all(handles)
    assert len(closed) == len(created)
