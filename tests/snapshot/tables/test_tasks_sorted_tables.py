"""Tables made by other processes: their contents, their figures, and what happens when they are wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.log.merge_model import columns_of
from tests.snapshot.snapshot_store_suite import QUICK_PLACE, SMALL, TIMELINE, about, apply, held_by, mark, put, remove
from warren.base.errors import Damage, Misuse, Refused
from warren.log.settings import EntryKind
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.tables.tasks import write_table

CLEAR = EntryKind.CLEAR_STORAGE


@pytest.fixture
def place() -> Iterator[Path]:
    with TemporaryDirectory(dir=QUICK_PLACE) as directory:
        yield Path(directory)


@pytest.fixture
def store(place: Path) -> Iterator[RocksDbStore]:
    store = RocksDbStore.open(str(place / "store"), TIMELINE, SMALL)
    yield store
    store.close()


def test_the_figures_match_what_the_table_holds(place: Path) -> None:
    entries = [put((1, 1), b"a"), remove((1, 4), b"b"), about(CLEAR, (1, 2), 4), put((1, 3), b"c", storage=4)]
    figures = write_table(str(place / "t"), [columns_of(entries[:1]), columns_of(entries[1:])])
    assert (figures.puts, figures.removes, figures.newest, figures.cleared) == (2, 1, (1, 4), {4})
    assert figures.has_file and (place / "t").exists()


def test_a_table_without_entries_is_no_file(place: Path) -> None:
    assert not write_table(str(place / "t"), []).has_file
    assert not (place / "t").exists()


def test_entries_out_of_order_are_misuse(place: Path) -> None:
    for entries in ([put((1, 1), b"b"), put((1, 2), b"a")], [put((1, 1), b"a"), put((1, 2), b"a")]):
        with pytest.raises(Misuse, match="ascending"):
            write_table(str(place / "t"), [columns_of(entries)])
    with pytest.raises(Refused):
        write_table(str(place / "nowhere" / "t"), [columns_of([put((1, 1))])])


def test_a_table_made_by_another_process_is_taken_and_its_file_used_up(place: Path, store: RocksDbStore) -> None:
    path = place / "t"
    program = (
        "import sys; from tests.log.merge_model import columns_of; from tests.snapshot.snapshot_store_suite import put;"
        "from warren.snapshot.tables.tasks import write_table;"
        "write_table(sys.argv[1], [columns_of([put((1, n), b'%04d' % n) for n in range(5000)])])"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, cwd=Path(__file__).parents[3])
    store.ingest([str(path)], mark(1, (1, 5000)))
    assert sum(1 for _ in store.range(3)) == 5000 and not path.exists()
    store.ingest([str(path)], mark(1, (1, 5000)))
    assert store.applied == mark(1, (1, 5000)), "done twice it is as done once"


def test_a_crash_before_the_step_leaves_the_tables_to_be_taken_again(place: Path, store: RocksDbStore) -> None:
    apply(store, put((1, 1), b"a"), put((1, 2), b"b"))
    good = write_table(str(place / "good"), [columns_of([about(CLEAR, (2, 1)), put((2, 2), b"c")])])
    with pytest.raises(Refused):
        store.ingest([good.path, str(place / "missing")], mark(2, (2, 9)), {b"n": b"1"}, good.cleared)
    assert (store.applied, len(held_by(store)), store.counter(b"n")) == (mark(1, (1, 2)), 2, None)
    assert store.failure is None
    store.ingest([good.path], mark(2, (2, 9)), {b"n": b"1"}, good.cleared)
    assert ([row.key for row in store.range(3)], store.counter(b"n")) == ([b"c"], b"1")


def test_a_damaged_table_is_refused_and_the_store_is_as_it_was(place: Path, store: RocksDbStore) -> None:
    apply(store, put((1, 1), b"a"))
    path = Path(write_table(str(place / "t"), [columns_of([put((2, n), b"%04d" % n) for n in range(3000)])]).path)
    data = bytearray(path.read_bytes())
    data[-30:] = bytes(30)
    path.write_bytes(data)
    with pytest.raises(Damage):
        store.ingest([str(path)], mark(2, (2, 3000)))
    path.write_bytes(b"no table at all")
    with pytest.raises(Damage):
        store.ingest([str(path)], mark(2, (2, 3000)))
    assert (store.applied, store.failure) == (mark(1, (1, 1)), None)
    apply(store, put((2, 1), b"b"))
    assert [row.key for row in store.range(3)] == [b"a", b"b"]


def test_a_view_of_the_first_tables_takes_nothing_away_from_them(store: RocksDbStore, place: Path) -> None:
    """RocksDB 9.8 drops rows of ingested files in a compaction, if a snapshot is open that is older than any write."""
    first = write_table(str(place / "t1"), [columns_of([put((1, n), b"%03d" % n) for n in range(200)])])
    store.ingest([first.path], mark(1, (1, 200)), {b"a": b"1"})
    view = store.view()
    second = write_table(str(place / "t2"), [columns_of([put((2, n), b"%03d" % n) for n in range(0, 200, 2)])])
    store.ingest([second.path], mark(2, (2, 200)), {b"b": b"2"})
    store.compact()
    assert [store.counter(name) for name in (b"a", b"b")] == [b"1", b"2"]
    assert [row.version[0] for row in store.range(3)] == [2, 1] * 100
    assert [row.version[0] for row in view.range(3)] == [1] * 200


def test_what_was_applied_before_tables_is_on_disk_with_them(place: Path, store: RocksDbStore) -> None:
    """A mark that comes with tables must not outlive batches before it that were only in memory."""
    apply(store, put((1, 1), b"a"))
    table = write_table(str(place / "t"), [columns_of([put((2, 1), b"z", storage=9)])])
    store.ingest([table.path], mark(2, (2, 1)))
    copy = place / "copy"
    subprocess.run(["cp", "-r", str(place / "store"), str(copy)], check=True)
    (copy / "LOCK").unlink()
    found = RocksDbStore.open(str(copy), TIMELINE, SMALL)
    assert found.applied == mark(2, (2, 1)) and found.get(3, b"a") == (b"v", (1, 1))
    found.close()
