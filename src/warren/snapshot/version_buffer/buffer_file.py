"""A buffer file: entries that the version buffer has spilled, in order. Immutable once it is complete.

    | entries | places | entries | places | … | end |

*Entries* is an ordinary block of entries, ordered by (version, channel, record); *places* has the channel and record
number of each; *end* has the number of entries, so a file without it was never finished. The name contains the
incarnation of its blocks: a random number, so that no two files of any two processes share a name (a backup takes equal
names for links to one file).

Invariants: a `BufferFile` is complete, and does not change until it is removed. `start` is the number of its first
entries that are done. Only `sync` syncs. Bytes: docs/formats/buffer_file.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from warren.base.errors import Damage, WarrenError
from warren.base.ids import Epoch, Incarnation, TimelineId
from warren.files.protocol import Buffer, Files, base_name, join
from warren.records.block import BlockDraft, FileIdentity, Header, check_block, draft, require_known_format
from warren.records.columns import EntryColumns, NumberColumn, Texts
from warren.records.entries import draft_entries, read_entries
from warren.records.format import BlockKind, BlockVerdict
from warren.snapshot.store import Version
from warren.snapshot.version_buffer.entries import BufferedEntries, rows_not_above

_NAME = re.compile("buffer-([0-9a-f]{16})")


class _Listed(NamedTuple):
    offset: int
    first: int  # number of its first entry
    version: Version  # of its first entry


class BufferFile:
    def __init__(self, files: Files, path: str, identity: FileIdentity, listed: list[_Listed], count: int) -> None:
        self._files = files
        self._identity = identity
        self._listed = listed
        self._count = count
        self._is_synced = False
        self.path = path
        self.start = 0

    @property
    def entries(self) -> int:
        return self._count - self.start

    @property
    def first_version(self) -> Version:
        return self._listed[0].version

    def blocks(self, start: int, stop: int) -> Iterator[BufferedEntries]:
        """Entries number `start` to before `stop`, block by block, as views of the file."""
        view = self._view()
        ends = [listed.first for listed in self._listed[1:]] + [self._count]
        for listed, end in zip(self._listed, ends, strict=True):
            if listed.first < stop and end > start:
                block, _ = _read_pair(view, self.path, self._identity, listed.offset, listed.first)
                yield block.part(max(start - listed.first, 0), min(stop, end) - listed.first)

    def rows_up_to(self, version: Version) -> int:
        """How many entries of the file have a version not above this one."""
        reached = [listed for listed in self._listed if listed.version <= version]
        if not reached:
            return 0
        last = reached[-1]
        block, _ = _read_pair(self._view(), self.path, self._identity, last.offset, last.first)
        return last.first + rows_not_above([column.array() for column in block.columns], version)

    def sync(self) -> None:
        """Sync its bytes; the directory is synced by the caller."""
        if not self._is_synced:
            file = self._files.open(self.path, writable=True)
            try:
                file.sync()
            finally:
                file.close()
            self._is_synced = True

    def remove(self) -> None:
        self._files.remove(self.path)

    def _view(self) -> memoryview:
        return _view_of(self._files, self.path)


def write_buffer_file(
    files: Files, directory: str, identity: FileIdentity, ordered: Iterable[BufferedEntries], block_bytes: int
) -> BufferFile:
    """A new file of these entries, which come in order. A file that fails is removed."""
    path = join(directory, f"buffer-{identity.incarnation:016x}")
    file = files.create(path)
    try:
        output = _BufferOutput(identity)
        for run in ordered:
            for part in run.split(block_bytes):
                file.write_at(output.offset, output.placed(part))
        file.write_at(output.offset, output.ended())
        file.close()
    except WarrenError:
        file.close()
        files.remove(path)  # frees its space, since the disk may be full
        raise
    return BufferFile(files, path, identity, output.listed, output.count)


def open_buffer_file(files: Files, path: str, timeline: TimelineId) -> BufferFile:
    """Open a persisted file, and verify every block; the name has its incarnation."""
    named = _NAME.fullmatch(base_name(path))
    if named is None:
        raise Damage(f"{base_name(path)} is not the name of a buffer file", path)
    identity = FileIdentity(timeline, Incarnation(int(named[1], 16)))
    view = _view_of(files, path)
    listed: list[_Listed] = []
    offset = count = 0
    while (header := _read_header(view, path, identity, offset)).kind != BlockKind.INDEX:
        block, end = _read_pair(view, path, identity, offset, count)
        listed.append(_Listed(offset, count, block.key(0)[:2]))
        offset, count = end, count + block.count
    if (header.first, header.entries) != (count, 0):
        raise Damage("a buffer file does not end where it says", path, offset)
    return BufferFile(files, path, identity, listed, count)


class _BufferOutput:
    """Places blocks one after another."""

    def __init__(self, identity: FileIdentity) -> None:
        self._identity = identity
        self.offset = 0
        self.count = 0
        self.listed: list[_Listed] = []

    def placed(self, part: BufferedEntries) -> list[Buffer]:
        self.listed.append(_Listed(self.offset, self.count, part.key(0)[:2]))
        pieces = self._place(draft_entries(part.entries))
        pieces += self._place(draft_entries(_places_of(part), kind=BlockKind.INDEX))
        self.count += part.count
        return pieces

    def ended(self) -> list[Buffer]:
        return self._place(draft(BlockKind.INDEX, []))

    def _place(self, block: BlockDraft) -> list[Buffer]:
        header, _ = block.place(self._identity, self.offset, Epoch(0), self.count)
        self.offset += block.size_bytes
        return [header, *block.pieces]


def _places_of(part: BufferedEntries) -> EntryColumns:
    """Channels and record numbers as entries: the block format has columns for them."""
    none, texts = NumberColumn(part.count, 0), Texts.empty(part.count)
    return EntryColumns(none, part.channels, none, part.records, texts, texts, none, none)


def _read_pair(
    view: memoryview, path: str, identity: FileIdentity, offset: int, first: int
) -> tuple[BufferedEntries, int]:
    """The entries of the two blocks from `offset` on, and where the next ones are."""
    head = _read_header(view, path, identity, offset)
    tail = _read_header(view, path, identity, head.end)
    kinds, counts = (head.kind, tail.kind), (tail.entries, tail.first)
    if kinds != (BlockKind.ENTRIES, BlockKind.INDEX) or head.first != first or counts != (head.entries, first):
        raise Damage("a buffer file's blocks do not belong together", path, offset)
    try:
        entries, places = read_entries(view, head), read_entries(view, tail)
    except Damage as damage:
        raise Damage(damage.bare, path, offset) from None
    if entries.epochs is None:
        raise Damage("a buffer file's block does not say the epochs of its entries", path, offset)
    return BufferedEntries(entries, places.storages, places.minors), tail.end


def _read_header(view: memoryview, path: str, identity: FileIdentity, offset: int) -> Header:
    found = check_block(view, offset, identity)
    if isinstance(found, BlockVerdict):
        raise Damage(f"a buffer file cannot be read: {found.value}", path, offset)
    require_known_format(found, path)
    return found


def _view_of(files: Files, path: str) -> memoryview:
    file = files.open(path)
    try:
        return file.view()
    finally:
        file.close()
