"""Options of RocksDB and the settings for them; its errors as errors of Warren; RocksDB and forked processes.

No write-ahead log, and atomic flushes; leveled, so that a key is in few files; a small memtable, since its contents are
lost in a crash and have to be read from the log again. Memory: the block cache, which holds index and filter blocks as
well, partitioned (whole, they would evict one another: measured, a cold get took 58 µs instead of 8), and the
memtables, which a write-buffer manager bounds. One writer with sorted batches: memtables need no concurrent inserts.

RocksDB stalls writers when compaction has fallen behind, and rocksdict blocks all other Python threads meanwhile. So
the stall limit is high, and reflection pauses before it is reached (`SnapshotStore.is_behind`).

rocksdict raises bare exceptions with RocksDB's text in them: `rocksdb_calls` maps them to error families.

RocksDB starts its background threads once per process; a forked child has the record of them, but not the threads: a
flush there waits for ever, and the library's exit handler joins them and crashes.

    check_process   before RocksDB is opened: a child of a process that used RocksDB is refused
    at the fork     the child is set up to skip C exit handlers; Python's own (`atexit`, finalizers) run as always
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompactionStyle,
    DBCompressionType,
    Env,
    IngestExternalFileOptions,
    Options,
    WriteBufferManager,
    WriteOptions,
)

from warren.base.environment import call_in_children
from warren.base.errors import Damage, DiskFailure, ForkedProcess, Locked, Misuse, OutOfRoom, Refused, WarrenError

_BLOCK_BYTES = 8 << 10
_METADATA_BLOCK_BYTES = 4 << 10
_BLOOM_BITS_PER_KEY = 10
_FILE_BYTES = 16 << 20
_FIRST_LEVEL_BYTES = 64 << 20  # new files of this size are compacted, however few they are: they may repeat keys
_BYTES_PER_SYNC = 1 << 20
_LOG_BYTES_MAX = 1 << 20  # of RocksDB's own LOG, for diagnosis only
_LOGS_KEPT = 2
LIVE_BYTES = "rocksdb.estimate-live-data-size"  # a property of RocksDB
FILES_BEHIND = 24  # with so many files in level 0, compaction has fallen behind
_FILES_STALLED = 4 * FILES_BEHIND


@dataclass(frozen=True, slots=True)
class SnapshotStoreSettings:
    write_buffer_bytes: int = 8 << 20  # size of a memtable; a second one may fill while it is written
    block_cache_bytes: int = 32 << 20  # memory for blocks read, index and filter blocks among them
    background_jobs: int = 2  # threads that flush and compact
    compression: str = "lz4"  # of the store's files: lz4, zstd or none
    read_rows: int = 512  # rows a range reads at once
    batch_rows: int = 4096  # rows of one of `batches`


def store_options(settings: SnapshotStoreSettings) -> Options:
    options = table_options(settings)
    options.create_if_missing(True)
    options.set_atomic_flush(True)
    options.set_allow_concurrent_memtable_write(False)
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_max_write_buffer_number(2)
    options.set_write_buffer_manager(WriteBufferManager(2 * settings.write_buffer_bytes, False))
    options.set_max_background_jobs(settings.background_jobs)
    options.set_level_zero_slowdown_writes_trigger(_FILES_STALLED)
    options.set_level_zero_stop_writes_trigger(_FILES_STALLED)
    options.set_env(_niced())
    options.set_compaction_style(DBCompactionStyle.level())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_bytes_for_level_base(_FIRST_LEVEL_BYTES)
    options.set_bytes_per_sync(_BYTES_PER_SYNC)
    options.set_keep_log_file_num(_LOGS_KEPT)
    options.set_max_log_file_size(_LOG_BYTES_MAX)
    options.set_stats_dump_period_sec(0)
    return options


def _niced() -> Env:
    """An environment with low-priority compaction; flushes are not niced."""
    env = Env()
    env.lower_thread_pool_cpu_priority()
    return env


def table_options(settings: SnapshotStoreSettings) -> Options:
    """The layout of files: for the store, and for tables that it ingests."""
    options = Options(raw_mode=True)
    options.set_compression_type(_compression(settings))
    options.set_target_file_size_base(_FILE_BYTES)
    layout = BlockBasedOptions()
    layout.set_block_cache(Cache(settings.block_cache_bytes))
    layout.set_block_size(_BLOCK_BYTES)
    layout.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    layout.set_format_version(5)
    layout.set_cache_index_and_filter_blocks(True)
    layout.set_pin_l0_filter_and_index_blocks_in_cache(True)
    layout.set_index_type(BlockBasedIndexType.two_level_index_search())
    layout.set_partition_filters(True)
    layout.set_pin_top_level_index_and_filter(True)
    layout.set_metadata_block_size(_METADATA_BLOCK_BYTES)
    options.set_block_based_table_factory(layout)
    return options


def without_wal() -> WriteOptions:
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment]  # the stub says method, it is an attribute
    return options


def moving() -> IngestExternalFileOptions:
    """Ingested files are linked into the store, not copied; their old names are removed."""
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    return options


def _compression(settings: SnapshotStoreSettings) -> DBCompressionType:
    match settings.compression:
        case "lz4":
            return DBCompressionType.lz4()
        case "zstd":
            return DBCompressionType.zstd()
        case _:
            return DBCompressionType.none()


REBUILD = "stop, remove the snapshot store's directory and start again: it is built anew from the log"
RESTART = "start again: the store is set aside and built anew, if the log has everything"
NO_SUCH_FILE = "No such file or directory"
_FILE_AND_OFFSET = re.compile(r" in (\S+\.sst) offset (\d+)")

# Part of RocksDB's text → family, hint. The first match wins.
FAMILIES: tuple[tuple[str, type[WarrenError], str], ...] = (
    ("No space left on device", OutOfRoom, "free some space on this disk, then resume"),
    ("Disk quota exceeded", OutOfRoom, "the user's disk quota is used up: raise it or free some space, then resume"),
    ("File too large", OutOfRoom, "a limit on the size of files is in force (`ulimit -f`): raise it, then resume"),
    ("lock hold by current process", Locked, "close the other opener of this snapshot store first"),
    ("While lock file", Locked, "another process holds this snapshot store: stop it first"),
    ("Corruption", Damage, RESTART),
    ("not an sstable", Damage, RESTART),
    ("bad magic number", Damage, RESTART),
    ("File exists (os error 17)", Refused, "a file stands where the store's directory should be: move it away"),
    ("Not a directory", Refused, "a file stands where a directory is needed: move it away"),
    ("Permission denied", Refused, "give this user access, or start as the user who owns the directory"),
    (NO_SUCH_FILE, Refused, "check the path"),
    ("strict ascending order", Misuse, "merge and sort the entries first: one for each key, by storage and key"),
    ("Invalid argument", Refused, "the directory holds a RocksDB store that is not a snapshot store of Warren"),
)
UNFORESEEN = (DiskFailure, "look at dmesg, at the disk's health and at the file LOG in the store's directory")


def translate(error: Exception, operation: str) -> WarrenError:
    """The error for RocksDB's. `operation` begins with a verb, for "cannot …"."""
    text = " ".join(str(error).split())
    if isinstance(error, DbClosedError):
        return Misuse(f"cannot {operation}: it is closed", "open it again")
    family, hint = next(((family, hint) for part, family, hint in FAMILIES if part in text), UNFORESEEN)
    if family is Damage:
        place = _FILE_AND_OFFSET.search(text)
        return Damage(f"cannot {operation}: {text}", place[1] if place else "", int(place[2]) if place else 0, hint)
    return family(f"cannot {operation}: {text}", hint)


class rocksdb_calls:
    """Maps every error of rocksdict. `on_damage` is called with damage before it is raised."""

    __slots__ = ("_on_damage", "_operation")

    def __init__(self, operation: str, on_damage: Callable[[Damage], None] | None = None) -> None:
        self._operation = operation
        self._on_damage = on_damage

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, WarrenError):
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> WarrenError:
        """Not in the frame that raises: an error referenced by its own frame keeps RocksDB open."""
        translated = translate(error, self._operation)
        if isinstance(translated, Damage) and self._on_damage is not None:
            self._on_damage(translated)
        return translated


class _Threads:
    """The background threads of RocksDB in this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        call_in_children(self)

    def forked(self) -> None:
        libc = ctypes.CDLL(None)
        on_exit = getattr(libc, "on_exit", None)  # in glibc; called with the exit status, before older handlers
        if on_exit is not None:
            on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


_threads: _Threads | None = None


def check_process(directory: str) -> None:
    """Raise if RocksDB cannot be opened in this process."""
    global _threads  # noqa: PLW0603 - RocksDB's threads are one set for a process too
    if _threads is None:
        _threads = _Threads()
    elif _threads.pid != os.getpid():
        raise ForkedProcess(
            f"{directory} cannot be opened: process {os.getpid()} is a fork of process {_threads.pid}, which has "
            "opened a store before",
            "open no store before the fork, or start the process by multiprocessing's `spawn` or `forkserver`",
        )
