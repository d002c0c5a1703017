"""The heap: files of records, written at their end, read anywhere, let go of whole.

    append ──▶ | … sealed file 3 | … sealed file 5 | file 6, being written ▸          places come back
                    ▲ read, by place                        release(3): nothing in it is wanted any more

The persistent store's heap is a stream of the log (`log_heap`), the transient one's are plain files that a start
deletes (`plain_heap`). Both hold blocks of `records`, and pass one suite of tests.

Always true: nothing is served whose checksum does not hold; a file that was released may still be read for a while, or
be `Gone`. Any thread may read at any time, and readers wait for nobody but the disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from warren.base.errors import Damage
from warren.base.ids import FileNumber, Lsn
from warren.log.block_reading import value_at
from warren.message_store.format import BodyPlace
from warren.records.columns import EntryColumns
from warren.records.format import HEADER

SHARED_BYTES_MAX = 64 << 10  # records up to this, together, go into one block
SHARED_RECORDS_MAX = 512
BESIDE_BYTES = 2048  # what stands around a value in its block, mostly: header, columns, key
READ_BYTES_MIN = 16 << 10


class Record(NamedTuple):
    """What is appended: contents, and who they belong to."""

    key: bytes
    value: bytes
    undo_prev: Lsn = Lsn(0)


class FoundRecord(NamedTuple):
    """The same, where it stands in a file."""

    place: BodyPlace
    key: bytes
    size_bytes: int  # of the value
    undo_prev: Lsn


class BodyFiles(Protocol):
    def append(self, records: Sequence[Record]) -> list[BodyPlace]:
        """Write them behind everything else, in order; where each is. What is durable, and when, is the heap's own."""
        ...

    def read(self, place: BodyPlace, size_bytes: int, is_kept: bool = True) -> memoryview:
        """The value of the record there, which has so many bytes. `Gone`: its file was let go of. `is_kept`: what lies
        beside it will be asked for soon."""
        ...

    def files(self) -> list[FileNumber]:
        """Files in use to which nothing more is written, oldest first."""
        ...

    def present_file(self) -> FileNumber:
        """The next record goes to this file, or to a later one."""
        ...

    def records(self, file: FileNumber) -> Iterator[FoundRecord]:
        """All records of such a file, in order; `Damage` if it is not whole."""
        ...

    def release(self, files: Collection[FileNumber]) -> None:
        """Nothing in these is wanted any more. For good when it returns."""
        ...

    def move_base(self, lsn: Lsn) -> None:
        """Nothing before `lsn` is wanted any more."""
        ...

    def path(self, file: FileNumber) -> str:
        """The name of a file, for people."""
        ...


def grouped(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Records that shall share a block: small ones that follow one another. A large one has a block to itself, so that
    whoever reads it reads nothing else."""
    group: list[Record] = []
    size_bytes = 0
    for record in records:
        own_bytes = len(record.key) + len(record.value)
        if group and (size_bytes + own_bytes > SHARED_BYTES_MAX or len(group) == SHARED_RECORDS_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(record)
        size_bytes += own_bytes
    if group:
        yield group


def record_at(columns: EntryColumns, place: BodyPlace, size_bytes: int, path: str) -> memoryview:
    """The value of one record of a block, if it is as long as it should be."""
    value = value_at(columns, place.entry, size_bytes)
    if value is None:
        what = f"record {place.entry} of a block should have {size_bytes} bytes, and has not"
        raise Damage(what, path, place.offset)
    return value


def beside(size_bytes: int) -> int:
    """How large the block of a record of this size is, mostly."""
    return max(HEADER.size + size_bytes + BESIDE_BYTES, READ_BYTES_MIN)
