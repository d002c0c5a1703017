"""Makes the golden directory of the present format version: `python -m tests.formats.make_directory`.

Run once per version, when it is released; the archive is then never made again, for what it proves is that a store
written *then* opens now. It holds what the version can hold: a compacted file, log files of two channels behind it, a
stream, a clear, a tombstone, explicit versions, and a tail that a crash left and no reader may see.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

from warren.base.errors import Misuse
from warren.log.file_record import FILE_HEADER_BYTES
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.records.format import FORMAT_VERSION

HERE = Path(__file__).parent
ARCHIVE = HERE / f"v{FORMAT_VERSION}.tar.xz"
SETTINGS = LogSettings(
    channel_count=2,
    container_bytes=512 << 10,
    use_worker_process=False,
    snapshot_at_stop=False,
    compaction_poll_seconds=3600,
    compaction_garbage_ratio=0,
)
# What the store says when it is opened: storage, key → value.
STATE = {
    (1, b"compacted"): b"once",
    (1, b"overwritten"): b"new",
    (1, b"versioned"): b"higher",
    (2, b"after the clear"): b"here",
}
STREAM = [b"first", b"second"]


def make(directory: Path) -> None:
    store = LogStore.open(str(directory), SETTINGS)
    with store.begin() as session:
        session.put(1, b"compacted", b"once")
        session.put(1, b"overwritten", b"old")
        session.put(1, b"removed", b"soon")
        session.put(2, b"before the clear", b"gone")
    store.compact()
    with store.begin(channel=1) as session:
        session.put(1, b"overwritten", b"new")
        session.remove(1, b"removed")
        session.clear_storage(2)
        session.put(2, b"after the clear", b"here")
    with store.begin() as session:
        session.put(1, b"versioned", b"higher", version=(1 << 40, 7))
        session.put(1, b"versioned", b"lower", version=(1 << 40, 6))
    with store.stream("audit").begin() as session:
        for record in STREAM:
            session.record(record)
    store.witness()
    end = store.channels[0].participant.end
    store.abandon()
    with (directory / "pwal_0000").open("r+b") as file:  # a block that was on its way when the power went
        file.seek(FILE_HEADER_BYTES)
        block = file.read(end - FILE_HEADER_BYTES)
        file.seek(end)
        file.write(block[: len(block) // 2])


def main() -> None:
    if ARCHIVE.exists():
        raise Misuse(f"{ARCHIVE} is there already", "a golden directory is made once")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "store"
        make(directory)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz") as archive:
            for path in sorted(directory.rglob("*")):
                archive.add(path, path.relative_to(directory), recursive=False)
        ARCHIVE.write_bytes(packed.getvalue())


if __name__ == "__main__":
    main()
