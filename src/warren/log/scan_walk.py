"""From block to block through one log file, over what is bad, adding up what is good.

The walk decides nothing about tails or repairs: it says where blocks that count stand, and where one that must be good
is not (log/scan_damage says what that hits).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from warren.base.checksum import crc32
from warren.base.errors import Refused
from warren.base.ids import UINT64_MAX, Epoch
from warren.durability.participant import FileEnd
from warren.log.file_header import FileKind
from warren.log.file_record import FileRecord
from warren.log.scan_damage import bad_range, peek
from warren.log.scan_verdict import FileScan, Problem, Range, ScanVerdict
from warren.records.block import Header, look
from warren.records.format import FORMAT_VERSION, BlockKind
from warren.records.verdict import BlockVerdict
from warren.records.walk import next_good

EVERY_EPOCH = Epoch(UINT64_MAX)
WITH_ENTRIES = (BlockKind.ENTRIES, BlockKind.SORTED)


def counted(record: FileRecord, stop: int) -> list[Range]:
    """The ranges of [0, stop) that are not voided."""
    ranges: list[Range] = []
    at = 0
    for voided in sorted(record.voided, key=lambda voided: voided.start):
        if at < min(voided.start, stop):
            ranges.append((at, min(voided.start, stop)))
        at = max(at, voided.end)
    return [*ranges, (at, stop)] if at < stop else ranges


def trusted(view: memoryview, good: Collection[Range]) -> Iterator[Header]:
    """The headers of ranges that were scanned before and found good."""
    for start, stop in good:
        at = start
        while at < stop:
            header = peek(view, at)
            assert header is not None, "a good range holds nothing but good blocks"
            yield header
            at = header.end


class ScanWalk:
    """From block to block, over what is bad, adding up what is good."""

    def __init__(self, view: memoryview, record: FileRecord) -> None:
        self._view = view
        self._record = record
        self._good: list[Range] = []
        self._blocks = self._entries = self._running = 0
        self._last: Header | None = None  # the last good block
        self._problems: list[Problem] = []

    def sealed(self) -> None:
        record = self._record
        for start, stop in counted(record, record.end):
            self._over(start, stop)
        if not self._problems and self._running != record.running:
            what = "the blocks are not those that were sealed: their running checksum differs"
            self._problems.append(Problem(what, 0, record.end))

    def active(self, durable: Epoch, witnessed: FileEnd | None) -> None:
        """As far as blocks are good and durable; then over what is bad, if something durable stands behind it."""
        voided = min((voided.start for voided in self._record.voided), default=UINT64_MAX)
        at = self._follow(0, min(voided, len(self._view)), durable)
        wanted = min(max(witnessed.end if witnessed else 0, self._last_durable(at, durable)), voided)
        self._over(at, wanted, durable)
        if witnessed and not self._problems and self._running_at(witnessed.end) != witnessed.running:
            what = "the blocks are not those that were synced: their running checksum differs"
            self._problems.append(Problem(what, 0, witnessed.end))

    def result(self, path: str) -> FileScan:
        verdict = ScanVerdict.UNEXPECTED if self._problems else ScanVerdict.OK
        max_epoch = self._last.epoch if self._last else Epoch(0)
        return FileScan(
            self._record,
            path,
            self._view,
            verdict,
            tuple(self._good),
            self._blocks,
            self._entries,
            max_epoch,
            self._running,
            tuple(self._problems),
        )

    def _over(self, start: int, stop: int, durable: Epoch = EVERY_EPOCH) -> None:
        """Everything from `start` to `stop` must be good: whatever is not becomes a problem."""
        at = start
        while at < stop:
            at = self._follow(at, stop, durable)
            if at > stop:
                self._problems.append(Problem("a block reaches beyond the file's valid end", stop, at))
            if at >= stop:
                return
            behind = next_good(self._view[:stop], self._record.identity, at + 8)
            end = behind.offset if behind else stop
            self._problems.append(bad_range(self._view, self._record.identity, at, end, self._last, behind))
            at = end

    def _follow(self, start: int, stop: int, durable: Epoch) -> int:
        """Good blocks from `start` on, up to `stop` or to the durable epoch's end; where they end."""
        at = start
        while at < stop:
            found = look(self._view, at, self._record.identity)
            if isinstance(found, BlockVerdict) or found.epoch > durable:
                break
            self._add(found)
            at = found.end
        if at > start:
            self._good.append((start, at))
        return at

    def _add(self, header: Header) -> None:
        if header.format > FORMAT_VERSION:
            what = f"log file {self._record.number} has blocks of format {header.format}"
            raise Refused(f"{what}, this warren reads up to {FORMAT_VERSION}", "use a newer warren")
        if self._last is not None and header.epoch < self._last.epoch and self._record.purpose is FileKind.LOG:
            what = f"epoch {header.epoch} stands behind epoch {self._last.epoch}"
            self._problems.append(Problem(what, header.offset, header.end))
        if (header.kind == BlockKind.FILE_HEADER) != (header.offset == 0):
            self._problems.append(Problem("a file header is missing or misplaced", header.offset, header.end))
        self._blocks += 1
        self._entries += header.entries if header.kind in WITH_ENTRIES else 0
        self._running = crc32(header.checksum.to_bytes(4, "little"), self._running)
        self._last = header

    def _last_durable(self, start: int, durable: Epoch) -> int:
        """The end of the last durable block behind `start`, or `start`."""
        end, found = start, next_good(self._view, self._record.identity, start)
        while found is not None:
            end = found.end if found.epoch <= durable else end
            found = next_good(self._view, self._record.identity, found.end)
        return end

    def _running_at(self, end: int) -> int | None:
        running = 0
        for header in trusted(self._view, self._good):
            running = crc32(header.checksum.to_bytes(4, "little"), running)
            if header.end == end:
                return running
        return None
