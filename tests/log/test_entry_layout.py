"""What an entry consists of, byte by byte, in the block a session leaves."""

from __future__ import annotations

import struct

from tests.left_open import remembered
from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log.file_record import active_name
from warren.log.read.blocks import walk
from warren.log.settings import EntryKind, LogSettings
from warren.log.store import LogStore
from warren.records.block import check_block
from warren.records.format import BlockKind, ColumnTag
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import MemoryFiles

QUIET = LogSettings(use_worker_process=False, compaction_poll_seconds=3600, snapshot_at_stop=False)
STORAGE, MAJOR, MINOR = 0x1122334455667788, 0x0102030405060708, 0x0A0B0C0D0E0F0001


def test_an_entry_is_storage_and_key_then_version_and_value_and_its_kind() -> None:
    """SO-06: storage id and key, epoch (major) and minor version as 8 bytes little-endian each, value, type.

    The seed writes them row by row; here each is a column, of which a single entry needs only the base."""
    files = MemoryFiles()
    store = remembered(
        LogStore.open("/log", QUIET, Environment(files, ManualClock(), SystemThreads(), SeededRandom(1)))
    )
    session = store.begin()
    session.put(STORAGE, b"the key", b"the value", version=(MAJOR, MINOR))
    session.commit()
    view = files.open(join("/log", active_name(store.channels[0].id))).view()
    (block,) = [header for header in walk(view, None).headers if header.kind == BlockKind.ENTRIES]
    assert check_block(view, block.offset, None) == block
    body = bytes(view[block.body_at : block.end])
    count, _, heap_at = struct.unpack_from("<HHI", body)
    columns = {tag: base for tag, _, _, _, _, base in struct.iter_unpack("<BBBBIQ", body[8 : 8 + 16 * count])}
    assert columns[ColumnTag.STORAGE] == STORAGE
    assert (columns[ColumnTag.MAJOR], columns[ColumnTag.MINOR]) == (MAJOR, MINOR)
    assert columns[ColumnTag.KIND] == EntryKind.PUT
    assert body[heap_at:].rstrip(b"\0") == b"the key" + b"the value"
    assert MAJOR.to_bytes(8, "little") in body and MINOR.to_bytes(8, "little") in body
    store.close()
