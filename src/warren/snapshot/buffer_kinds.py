"""Which version buffer: `memory`, columns in memory and files when they are too many, or `rocksdb`, a column family.

The one in memory writes nothing at all as long as reflection keeps up, and is the default. The one in RocksDB takes no
more memory than two memtables however far the store is behind, and costs a write and a delete for each entry.

When the disk was full, RocksDB takes nothing more until it is opened anew: for the buffer in RocksDB that is the next
start of the program. Till then an alarm says so, the log keeps everything, and reads lay it over the store.

Both begin empty, whatever an earlier life left there, of either kind: the log has all of it. So a buffer that was
damaged by a crash is never opened, and one kind follows the other without ado.
"""

from __future__ import annotations

from warren.base.errors import Misuse
from warren.base.ids import TimelineId
from warren.files.protocol import Files, join
from warren.log.machine import Environment
from warren.snapshot.memory_buffer import MemoryBuffer
from warren.snapshot.rocksdb_buffer import open_buffer
from warren.snapshot.version_buffer import VersionBuffer

MEMORY, ROCKSDB = "memory", "rocksdb"
MEMTABLE_BYTES_MIN = 64 << 10


def open_version_buffer(
    kind: str, machine: Environment, directory: str, timeline: TimelineId, memory_bytes: int
) -> VersionBuffer:
    if kind == MEMORY:
        return MemoryBuffer(machine.files, machine.threads, machine.chance, directory, timeline, memory_bytes)
    if kind == ROCKSDB:
        clear(machine.files, directory)
        return open_buffer(directory, machine.threads, max(memory_bytes // 2, MEMTABLE_BYTES_MIN))
    raise Misuse(f"there is no version buffer called {kind!r}", f"it may be {MEMORY} or {ROCKSDB}")


def clear(files: Files, directory: str) -> None:
    files.make_directories(directory)
    for name in files.list(directory):
        files.remove(join(directory, name))
