"""A buffer file: what the version buffer has written out, in order. Immutable from the moment it is whole.

    | entries | places | entries | places | … | end |

*Entries* is an ordinary block of entries, ordered by (version, channel, record); *places* says under which channel and
record number each of them came; *end* says how many there are, so that a file without it was never finished. Its name
holds the incarnation that its blocks hold: a random number, so that no two files of any two lives share a name (a
backup takes equal names for links to one file).

Always true: whoever has a `BufferFile` has a whole one; nothing of it changes until it is removed. `start` is how many
of its first entries are no longer asked for. Nothing is synced but by `sync`. Bytes: docs/formats/buffer_file.md.
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
        """Its bytes are on the disk, though perhaps not its name."""
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
    """A new file of these entries, which come in order. When it fails, nothing of it is left."""
    path = join(directory, f"buffer-{identity.incarnation:016x}")
    file = files.create(path)
    try:
        output = _Output(identity)
        for kept in ordered:
            for part in kept.split(block_bytes):
                file.write_at(output.offset, output.placed(part))
        file.write_at(output.offset, output.ended())
        file.close()
    except WarrenError:
        file.close()
        files.remove(path)  # its room is wanted most when the disk is full
        raise
    return BufferFile(files, path, identity, output.listed, output.count)


def open_buffer_file(files: Files, path: str, timeline: TimelineId) -> BufferFile:
    """A file that was persisted, every block of it verified; it is known by its name."""
    named = _NAME.fullmatch(base_name(path))
    if named is None:
        raise Damage(f"{base_name(path)} is not the name of a buffer file", path)
    identity = FileIdentity(timeline, Incarnation(int(named[1], 16)))
    view = _view_of(files, path)
    listed: list[_Listed] = []
    offset = count = 0
    while (header := _look(view, path, identity, offset)).kind != BlockKind.INDEX:
        block, end = _read_pair(view, path, identity, offset, count)
        listed.append(_Listed(offset, count, block.key(0)[:2]))
        offset, count = end, count + block.count
    if (header.first, header.entries) != (count, 0):
        raise Damage("a buffer file does not end where it says", path, offset)
    return BufferFile(files, path, identity, listed, count)


class _Output:
    """Blocks given their places, one behind the other."""

    def __init__(self, identity: FileIdentity) -> None:
        self._identity = identity
        self.offset = 0
        self.count = 0
        self.listed: list[_Listed] = []

    def placed(self, kept: BufferedEntries) -> list[Buffer]:
        self.listed.append(_Listed(self.offset, self.count, kept.key(0)[:2]))
        pieces = self._place(draft_entries(kept.entries))
        pieces += self._place(draft_entries(_places_of(kept), kind=BlockKind.INDEX))
        self.count += kept.count
        return pieces

    def ended(self) -> list[Buffer]:
        return self._place(draft(BlockKind.INDEX, []))

    def _place(self, made: BlockDraft) -> list[Buffer]:
        header, _ = made.place(self._identity, self.offset, Epoch(0), self.count)
        self.offset += made.size_bytes
        return [header, *made.pieces]


def _places_of(kept: BufferedEntries) -> EntryColumns:
    """Channels and record numbers, dressed as entries: the block format has columns for them."""
    none, texts = NumberColumn(kept.count, 0), Texts.empty(kept.count)
    return EntryColumns(none, kept.channels, none, kept.records, texts, texts, none, none)


def _read_pair(
    view: memoryview, path: str, identity: FileIdentity, offset: int, first: int
) -> tuple[BufferedEntries, int]:
    """The entries of the two blocks from `offset` on, and where the next ones are."""
    head = _look(view, path, identity, offset)
    tail = _look(view, path, identity, head.end)
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


def _look(view: memoryview, path: str, identity: FileIdentity, offset: int) -> Header:
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
