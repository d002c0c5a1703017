"""A database as it is opened on a real machine: RocksDB, processes that make tables, and the buffer that was asked for.

The embedded API and the broker open theirs here; the simulator opens its own, on stand-ins.
"""

from __future__ import annotations

from warren.base.ids import TimelineId
from warren.files.local import restrict
from warren.files.protocol import join
from warren.log.machine import Environment
from warren.log.settings import LogSettings
from warren.log.worker import Progress
from warren.snapshot.buffer_kinds import open_version_buffer
from warren.snapshot.database import Database
from warren.snapshot.layout import BUFFER, LOG, SECONDARY, SET_ASIDE, STORE, TABLES
from warren.snapshot.outside import PullerClient
from warren.snapshot.reflection import ReflectionSettings
from warren.snapshot.rocksdb_process import check_process
from warren.snapshot.rocksdb_store import RocksDbStore
from warren.snapshot.snapshot_store import SnapshotStore
from warren.snapshot.table_worker import ProcessTables
from warren.snapshot.version_buffer import VersionBuffer

# Each is made with mode 0700. One that has more, such as a copy, or a store that an older version made, is restricted.
# The last three are those of queues, whose modules a program without queues does not load.
_OWN_DIRECTORIES = (LOG, STORE, BUFFER, TABLES, SET_ASIDE, SECONDARY, "catalog", "transient", "sql_queues")


def open_database(
    path: str,
    machine: Environment,
    log_settings: LogSettings | None,
    settings: ReflectionSettings,
    progress: Progress = lambda share: None,
) -> Database:
    """Open a directory, or make one. Nobody else may have it open."""

    def open_store(directory: str, timeline: TimelineId) -> SnapshotStore:
        return RocksDbStore.open(directory, timeline, threads=machine.threads)

    def open_buffer(directory: str, timeline: TimelineId) -> VersionBuffer:
        return open_version_buffer(settings.buffer, machine, directory, timeline, settings.buffer_bytes)

    check_process(path)
    for name in _OWN_DIRECTORIES:
        restrict(join(path, name))
    tables = ProcessTables()
    return Database.open(path, open_store, log_settings, settings, machine, progress, tables, PullerClient, open_buffer)
