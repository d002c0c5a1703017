"""Makes the golden directories of the safe snapshot store's present format: `python -m tests.formats.make_snapshot`.

    store/          the rows, the clear and the mark of docs/formats/snapshot_store.md, and a counter
    unsettled/      a store that holds entries beyond its mark's epoch: an ingested table, and a grave
    buffer/         the buffer file of docs/formats/buffer_file.md
    family/         the same two entries, persisted by the buffer that is a column family
    database/       a log and its store, killed: what was written first is in the store only, what came last in the log

Run once per version, when it is released; the archive is then never made again, for what it proves is that a store
written *then* opens now. RocksDB's diary (LOG) and locks are left out: they are not read.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

import warren
from tests.log.merge_model import Entry, columns_of
from tests.snapshot.version_buffer.test_buffer_file import IDENTITY, SHOWN
from warren.base.errors import Misuse
from warren.base.ids import ChannelId, Epoch, TimelineId
from warren.base.threads import SystemThreads
from warren.files.local import LocalFiles
from warren.log.settings import EntryKind, LogSettings
from warren.snapshot.reflection import ReflectionSettings
from warren.snapshot.rocksdb.row_format import FORMAT
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import Applied, Version
from warren.snapshot.tables.tasks import write_table
from warren.snapshot.version_buffer.buffer_file import write_buffer_file
from warren.snapshot.version_buffer.entries import BufferedEntries
from warren.snapshot.version_buffer.rocksdb_buffer import open_buffer

ARCHIVE = Path(__file__).parent / f"snapshot_v{FORMAT}.tar.xz"
TIMELINE = TimelineId(0x11)
LEFT_OUT = ("LOG", "LOCK", "lock")
LOG = LogSettings(
    use_worker_process=False,
    container_bytes=512 << 10,
    compaction_poll_seconds=3600,
    retention_seconds=0,
    retention_bytes=0,
)
REFLECTION = ReflectionSettings(lag_seconds=3600, flush_seconds=3600)  # only when it is asked
# What the database says when it is opened: storage, key → value.
DATABASE = {
    "users": {b"ada": b"countess", b"alan": b"professor", b"grace": b"admiral"},
    "cleared": {b"after": b"the clear"},
}


def mark(epoch: int, version: Version) -> Applied:
    return Applied(TIMELINE, Epoch(epoch), version)


def make_store(directory: Path) -> None:
    store = RocksDbStore.open(str(directory), TIMELINE)
    bee = Entry(EntryKind.PUT, 4, b"bee", (5, 300), b"wings", epoch=9)
    store.apply([columns_of([bee])], mark(9, (5, 300)), {b"ready": b"1"})
    cleared = Entry(EntryKind.CLEAR_STORAGE, 3, b"", (6, 0), epoch=6)
    ant = Entry(EntryKind.PUT, 3, b"ant", (0x123456, 7), b"six legs", epoch=0x123456)
    store.apply([columns_of([cleared, ant])], mark(0x123456, (0x123456, 7)), {b"ready": b"2"})
    store.close()


def make_unsettled(directory: Path) -> None:
    store = RocksDbStore.open(str(directory), TIMELINE)
    loaded = [Entry(EntryKind.PUT, 3, name, (2, 1), b"from a table", epoch=2) for name in (b"gone", b"stays")]
    figures = write_table(f"{directory}.table", [columns_of(loaded)])
    store.ingest([figures.path], mark(2, (2, 1)))
    store.apply([columns_of([Entry(EntryKind.REMOVE, 3, b"gone", (3, 1), epoch=7)])], mark(2, (3, 1)))
    store.close()


def make_buffers(directory: Path) -> None:
    (directory / "buffer").mkdir()
    entries = BufferedEntries.of_batch(ChannelId(1), 9, columns_of(SHOWN))
    write_buffer_file(LocalFiles(), str(directory / "buffer"), IDENTITY, [entries], 1 << 20)
    family = open_buffer(str(directory / "family"), SystemThreads())
    family.add(ChannelId(1), 9, columns_of(SHOWN))
    family.persist()
    family.close()


def make_database(directory: Path) -> None:
    db = warren.open(str(directory), log_settings=LOG, reflection=REFLECTION)
    log, reflection = db.database.log, db.database.reflection
    assert reflection is not None
    db.kv("users").put_many({b"ada": b"countess", b"alan": b"baker", b"linus": b"student"})
    db.kv("cleared").put_many({b"before": b"the clear"})
    db.database.settle()
    log.rotate()
    reflection.flush()
    log.purge()
    assert log.manifest.state.horizon > 0, "what was written first has left the log"
    db.kv("users").put_many({b"alan": b"professor", b"grace": b"admiral"})
    db.kv("users").discard(b"linus")
    db.kv("cleared").clear()
    db.kv("cleared")[b"after"] = b"the clear"
    log.witness()
    db.database.abandon()


def main() -> None:
    if ARCHIVE.exists():
        raise Misuse(f"{ARCHIVE} is there already", "a golden directory is made once")
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        make_store(home / "store")
        make_unsettled(home / "unsettled")
        make_buffers(home)
        make_database(home / "database")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz") as archive:
            for path in sorted(home.rglob("*")):
                if path.name.partition(".")[0] not in LEFT_OUT:
                    archive.add(path, path.relative_to(home), recursive=False)
        ARCHIVE.write_bytes(packed.getvalue())


if __name__ == "__main__":
    main()
