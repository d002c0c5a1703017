"""Inspection of a simulated disk, independent of the store.

The state is read through the store, like a user does. Everything else is read here from the bytes: the entries of the
log files in the manifest up to their valid ends, the epochs that left any block at all, and the epoch up to which the
epoch file lets other processes read. This module uses the block format (records) and the manifest, but no code of scan,
merge and recovery: an oracle that shares the product's code shares its faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from tools.simulator.observations import RecoveredEntry, State, Violation, Write
from warren.durability.epoch_file import read_witness
from warren.files.protocol import join
from warren.log.compaction.startup_snapshot import StartupSnapshot
from warren.log.file_record import EPOCH, MANIFEST, FileKind, FileRecord, FileState, epoch_of_name, is_wal
from warren.log.manifest import ManifestState, read_manifest
from warren.log.read.blocks import next_good, walk
from warren.log.settings import EntryKind
from warren.log.store import LogStore
from warren.records.block import FileIdentity, Header
from warren.records.entries import read_entries
from warren.records.format import BlockKind
from warren.testing.fakes import SeededRandom
from warren.testing.memory_files import CrashModel, MemoryFiles

Contents = dict[tuple[int, int], bytes]  # (timeline, epoch) → digest of its closing block


def horizon(disk: MemoryFiles, directory: str) -> int:
    """The epoch up to which another process would read now: what the page cache shows of the epoch file."""
    path = join(directory, EPOCH)
    if not disk.exists(path):
        return 0
    witness, _ = read_witness(disk, path)
    return witness.durable if witness is not None else 0


def newest_witness(disk: MemoryFiles, directory: str) -> int:
    """The highest epoch that any epoch file, also a rotated one, names as durable."""
    names = disk.list(directory) if disk.exists(directory) else []
    paths = [join(directory, name) for name in names if name == EPOCH or epoch_of_name(name) is not None]
    return max((witness.durable for path in paths if (witness := read_witness(disk, path)[0])), default=0)


def epochs_on_disk(disk: MemoryFiles, directory: str) -> tuple[int, Contents]:
    """The highest epoch of any good block in any log file, valid or not, and the closing blocks there are."""
    highest, contents = 0, Contents()
    for view in _log_views(disk, directory):
        for header in _all_blocks(view):
            highest = max(highest, header.epoch)
            if header.kind == BlockKind.CLOSING:
                digest = blake2b(view[header.body_at : header.end], digest_size=16).digest()
                if contents.setdefault((header.timeline, header.epoch), digest) != digest:
                    raise Violation(f"epoch {header.epoch} was used twice: the log has two closing blocks that differ")
    return highest, contents


def check_numbers(disk: MemoryFiles, directory: str) -> None:
    """The next file number lies above every one that was given: else a second file of a number would hide the first."""
    if disk.exists(join(directory, MANIFEST)):
        state = read_manifest(disk, directory)
        if again := [number for number in state.files if number >= state.next_file]:
            raise Violation(f"file number {again[0]} may be given twice: next in the manifest is {state.next_file}")


def entries_of(
    disk: MemoryFiles, directory: str, manifest: ManifestState, is_decayed: bool
) -> tuple[RecoveredEntry, ...]:
    """Every entry in the valid part of a sealed log file. Where the disk has decayed, of what can be read."""
    sealed = [r for r in manifest.of_state(FileState.SEALED) if r.purpose is FileKind.LOG]
    return tuple(found for record in sealed for found in _entries_of_file(disk, directory, record, is_decayed))


def state_of(snapshot: StartupSnapshot) -> State:
    """What a user of the store is shown."""
    return {(row.storage, row.key): row.value for row in snapshot.cursor()}


def records_of(store: LogStore) -> dict[str, list[bytes]]:
    """The records of every stream, from its base on, as its readers are shown them."""
    named = {record.name: record for record in store.manifest.state.streams.values() if record.is_records}
    return {
        name: [value for _, columns in store.stream(name).read() for value in columns.values.to_list()]
        for name in named
    }


def durable_blocks(disk: MemoryFiles, directory: str) -> list[tuple[str, Header, list[Write]]]:
    """Blocks of entries that must be on the disk, since the epoch file confirms them there and not only in the page
    cache; with their paths and entries. Beyond that, after a crash, a torn tail cannot be distinguished from damage
    (docs/decisions/0002-the-epoch-file-is-written-in-the-background.md)."""
    durable = horizon(disk.crash(CrashModel.SYNCED, SeededRandom(0)), directory)
    found = []
    for name in disk.list(directory):
        path = join(directory, name)
        view = memoryview(disk.contents(path)) if is_wal(name) else memoryview(b"")
        for header in _all_blocks(view):
            if header.kind == BlockKind.ENTRIES and header.epoch <= durable:
                found.append((path, header, [entry.write for entry in _entries_of_block(view, header)]))
    return found


def _log_views(disk: MemoryFiles, directory: str) -> Iterator[memoryview]:
    for name in disk.list(directory) if disk.exists(directory) else []:
        if is_wal(name):
            yield memoryview(disk.contents(join(directory, name)))


def _all_blocks(view: memoryview) -> Iterator[Header]:
    """Good blocks, behind damage too. The life is that of the file's own header: what a recycled file has of earlier
    ones is not there."""
    first = next_good(view, None, 0)
    if first is None:
        return
    identity = FileIdentity(first.timeline, first.incarnation)
    found: Header | None = first
    while found is not None:
        walked = walk(view, identity, found.offset)
        yield from walked.headers
        found = next_good(view, identity, walked.end + 8)


def _entries_of_file(
    disk: MemoryFiles, directory: str, record: FileRecord, is_decayed: bool
) -> Iterator[RecoveredEntry]:
    path = join(directory, record.name)
    if not disk.exists(path):
        raise Violation(f"the manifest names {record.name}, which is not there")
    view = memoryview(disk.contents(path))
    for header in _valid_blocks(view, record, is_decayed):
        if header.kind == BlockKind.ENTRIES:
            yield from _entries_of_block(view, header)


def _valid_blocks(view: memoryview, record: FileRecord, is_decayed: bool) -> Iterator[Header]:
    if is_decayed or record.voided:
        for header in _all_blocks(view):
            if header.end <= record.end and not any(
                v.start < header.end and header.offset < v.end for v in record.voided
            ):
                yield header
        return
    walked = walk(view, record.identity, 0, record.end)
    if walked.end != record.end or walked.running != record.running:
        raise Violation(f"{record.name} is not whole up to byte {record.end}: good blocks end at {walked.end}")
    yield from walked.headers


def _entries_of_block(view: memoryview, header: Header) -> Iterator[RecoveredEntry]:
    columns = read_entries(view, header)
    keys, values = columns.keys.to_list(), columns.values.to_list()
    kinds, storages = columns.kinds.array().tolist(), columns.storages.array().tolist()
    for kind, storage, key, value in zip(kinds, storages, keys, values, strict=True):
        yield RecoveredEntry(header.epoch, Write(EntryKind(kind), storage, key, value))
