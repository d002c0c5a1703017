"""What a scan says of a log file, in the seed's own words, and where exactly something is wrong.

    OK                      every block that counts is good
    REPAIRED                blocks beyond the durable epoch were marked as void by this scan
    BROKEN_AFTER_TOBE_CUT   only ever inside a cut; a scan never shows it
    BROKEN_AFTER_MARKED     what is broken stands behind a mark: do not append to this file
    NONDURABLE_ENTRIES      whole blocks beyond the durable epoch, not marked
    BROKEN_AFTER            the tail is broken, not marked
    UNEXPECTED              a block that was durable is not what was written: damage
    FAILED                  the file could not be read at all

Ordered by how bad they are, as limestone numbers them. A mark is a voided range in the manifest: no scan changes a
file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from warren.base.ids import Epoch
from warren.log.file_record import FileRecord, FileState, Voided

Range = tuple[int, int]  # from this byte to that one, the latter not included


class ScanVerdict(IntEnum):
    OK = 0
    REPAIRED = 0x01
    BROKEN_AFTER_TOBE_CUT = 0x08
    BROKEN_AFTER_MARKED = 0x11
    NONDURABLE_ENTRIES = 0x40
    BROKEN_AFTER = 0x41
    UNEXPECTED = 0x81
    FAILED = 0xFF

    @property
    def word(self) -> str:
        return self.name.lower()


class AtNondurable(Enum):
    """What to do with whole blocks beyond the durable epoch."""

    REPAIR_BY_MARK = "mark them as void"
    REPORT = "report them"
    IGNORE = "pass over them: the file is being written"


@dataclass(frozen=True, slots=True)
class Hit:
    """What a bad range of bytes hits, as far as its neighbours and what is left of its own header tell."""

    first_epoch: Epoch
    last_epoch: Epoch
    kind: str  # of the first block in it
    entries_max: int | None  # at most so many entries; None: nothing tells
    storages: tuple[int, ...]  # that it, or its neighbours, spoke of

    def __str__(self) -> str:
        epochs = f"epoch {self.first_epoch}"
        if self.last_epoch != self.first_epoch:
            epochs = f"epochs {self.first_epoch} … {self.last_epoch}"
        entries = f", at most {self.entries_max} entries" if self.entries_max else ""
        storages = f", storage {', '.join(map(str, self.storages))}" if self.storages else ""
        return f"{self.kind} block of {epochs}{entries}{storages}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, from which byte to which, and what it hits."""

    what: str
    offset: int
    end: int
    hit: Hit | None = None
    is_tail: bool = False  # stands behind everything that counts: a power cut's doing, or a writer's

    def __str__(self) -> str:
        hits = f"; hits {self.hit}" if self.hit else ""
        return f"{self.what}, bytes {self.offset} … {self.end}{hits}"


@dataclass(frozen=True, slots=True)
class FileScan:
    """One file, scanned."""

    record: FileRecord
    path: str
    view: memoryview
    verdict: ScanVerdict
    good: tuple[Range, ...] = ()  # where the blocks that count stand, one behind the other
    blocks: int = 0
    entries: int = 0
    max_epoch: Epoch = Epoch(0)  # highest epoch that appeared, durable or not
    running: int = 0  # checksum over the checksums of the good blocks
    problems: tuple[Problem, ...] = field(default=())
    marks: tuple[Voided, ...] = ()  # what this scan marks: for the owner of the manifest to commit

    @property
    def is_detached(self) -> bool:
        return self.record.state is not FileState.ACTIVE

    @property
    def end(self) -> int:
        return self.good[-1][1] if self.good else 0

    @property
    def is_modified(self) -> bool:
        return bool(self.marks)
