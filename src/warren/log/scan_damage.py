"""What does a bad range of bytes hit? The neighbours tell, and what is left of the block's own header.

    | entries 7 | closing 7 | ??????????? | entries 8 | closing 8 |
                              ^ a block of epoch 8; its first entry is number 0, the next good one begins with number 40

Nothing here is believed for more than a message: a header whose checksum does not hold may say anything.
"""

from __future__ import annotations

from warren.base.errors import WarrenError
from warren.base.ids import Epoch
from warren.log.file_header import FILE_HEADER_BYTES
from warren.log.scan_verdict import Hit, Problem
from warren.records.block import FileIdentity, Header
from warren.records.entries import read_entries
from warren.records.format import BLOCK_BYTES_MAX, HEADER, MAGIC, BlockKind

_STORAGES_SHOWN_MAX = 8
_WITH_ENTRIES = (BlockKind.ENTRIES, BlockKind.SORTED)


def peek(view: memoryview, offset: int) -> Header | None:
    """What stands at `offset` read as a header, its checksum not looked at. None where there is none."""
    if offset + HEADER.size > len(view):
        return None
    raw = HEADER.unpack_from(view, offset)
    return Header(raw[1], raw[2], raw[4], raw[5], *raw[6:]) if raw[0] == MAGIC else None


def bad_range(
    view: memoryview, identity: FileIdentity, start: int, end: int, before: Header | None, behind: Header | None
) -> Problem:
    """The problem of the bytes between two good blocks."""
    own = peek(view, start)
    if own is not None and (own.offset != start or (own.timeline, own.incarnation) != identity):
        own = None
    what = "a block's checksum does not hold" if own else "there is no block where one was written"
    if start == 0 and behind is not None and end == FILE_HEADER_BYTES:
        return Problem(what, start, end, Hit(Epoch(0), Epoch(0), "file header", 0, ()))
    return Problem(what, start, end, _hit(view, own, before, behind))


def _hit(view: memoryview, own: Header | None, before: Header | None, behind: Header | None) -> Hit:
    first = _epoch_behind(before)
    last = behind.epoch if behind else first
    if own is not None and first <= own.epoch <= max(last, first + 1):
        first = own.epoch
    entries, storages = _entries_max(own, before, behind), _storages(view, own, before, behind)
    return Hit(first, max(first, last), _kind_of(own), entries, storages)


def _epoch_behind(before: Header | None) -> Epoch:
    """The epoch that the block behind this one belongs to, at the earliest."""
    if before is None:
        return Epoch(0)
    return Epoch(before.epoch + 1) if before.kind == BlockKind.CLOSING else before.epoch


def _kind_of(own: Header | None) -> str:
    if own is not None and own.kind in BlockKind._value2member_map_:
        return BlockKind(own.kind).name.lower().replace("_", " ")
    return "unreadable"


def _entries_max(own: Header | None, before: Header | None, behind: Header | None) -> int | None:
    """Entries of an epoch are numbered one by one, so the gap between two blocks bounds what stood there."""
    if own is not None and own.kind == BlockKind.CLOSING:
        return 0
    if before is not None and behind is not None and behind.kind in _WITH_ENTRIES:
        if before.kind in _WITH_ENTRIES and before.epoch == behind.epoch:
            return max(0, behind.first - before.first - before.entries)
        if before.kind == BlockKind.CLOSING and behind.epoch == before.epoch + 1:
            return behind.first
    if own is not None and own.kind in _WITH_ENTRIES and own.entries <= BLOCK_BYTES_MAX:
        return own.entries
    return None


def _storages(view: memoryview, own: Header | None, before: Header | None, behind: Header | None) -> tuple[int, ...]:
    found = _storages_in(view, own)
    if not found and own is None:
        found = _storages_in(view, before) | _storages_in(view, behind)
    return tuple(sorted(found)[:_STORAGES_SHOWN_MAX])


def _storages_in(view: memoryview, header: Header | None) -> set[int]:
    if header is None or header.kind not in _WITH_ENTRIES or header.end > len(view) or not header.entries:
        return set()
    if header.entries > header.body_bytes:
        return set()
    try:
        storages = read_entries(view, header).storages
    except WarrenError:
        return set()
    return {storages.base} if storages.is_constant else set(map(int, storages.array()))
