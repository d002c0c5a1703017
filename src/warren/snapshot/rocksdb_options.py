"""What RocksDB is told: how it writes, how much memory it may take, how files are laid out. And its settings.

No log of its own, and flushes that are atomic; leveled, so that a key lies in few files; a small memtable, for what is
in it is lost in a crash and has to be read from the log again. Memory: the block cache, which holds index and filter
blocks as well, cut into small pieces (whole, they would push one another out: measured, a cold get took 58 µs instead
of 8), and the memtables, which a write-buffer manager bounds. One writer, whose batches are sorted: memtables need no
concurrent inserts.

RocksDB stalls whoever writes when compaction has fallen behind, and rocksdict lets no other thread of Python run
meanwhile. So the stall comes late, and whoever reflects waits by himself before (`SnapshotStore.is_behind`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Env,
    IngestExternalFileOptions,
    Options,
    WriteBufferManager,
    WriteOptions,
)

_BLOCK_BYTES = 8 << 10
_METADATA_BLOCK_BYTES = 4 << 10
_BLOOM_BITS_PER_KEY = 10
_FILE_BYTES = 16 << 20
_FIRST_LEVEL_BYTES = 64 << 20  # so much of new files is sorted in, however few they are: they may hold keys once more
_BYTES_PER_SYNC = 1 << 20
_LOG_BYTES_MAX = 1 << 20  # of RocksDB's own diary, which nobody reads until something is wrong
_LOGS_KEPT = 2
LIVE_BYTES = "rocksdb.estimate-live-data-size"  # a figure that RocksDB tells
FILES_BEHIND = 24  # so many files that are not sorted in yet mean that compaction has fallen behind
_FILES_STALLED = 4 * FILES_BEHIND


@dataclass(frozen=True, slots=True)
class SnapshotStoreSettings:
    write_buffer_bytes: int = 8 << 20  # a memtable of this size is written to a file; one more may be filling meanwhile
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
    """Where compaction takes the processor time that nobody else wants; flushes are not niced."""
    env = Env()
    env.lower_thread_pool_cpu_priority()
    return env


def table_options(settings: SnapshotStoreSettings) -> Options:
    """How a file is laid out: for the store, and for whoever writes files that it will take."""
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
    """Ingested files are linked into the store, not copied; their old names go when they are in force."""
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
