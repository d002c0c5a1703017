"""What stands behind the blocks that count: nothing, a writer's work, a power cut's, or something that was marked.

    behind the last counted block          marked in the manifest, or by this scan    not marked
    whole blocks beyond the durable epoch  OK, or REPAIRED if marked just now         NONDURABLE_ENTRIES
    anything else that is not zeros        BROKEN_AFTER_MARKED                        BROKEN_AFTER

The worst counts. In a recycled file the bytes of its earlier life stand behind the tail: only good blocks of this life
say how far it came.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warren.base.ids import Epoch
from warren.log.file_record import FileState, Voided
from warren.log.scan_verdict import AtNondurable, FileScan, Problem, Range, ScanVerdict
from warren.records.block import Header, look
from warren.records.walk import extent, next_good


@dataclass(frozen=True, slots=True)
class FileTail:
    """What was written behind the blocks that count."""

    whole: tuple[Header, ...]  # good blocks of this life
    broken: tuple[Range, ...]  # everything else

    @property
    def end(self) -> int:
        return max([0, *(header.end for header in self.whole), *(end for _, end in self.broken)])


def judge_tail(scan: FileScan, durable: Epoch, at_nondurable: AtNondurable) -> FileScan:
    """The scan with its tail taken into account."""
    start = max(scan.end, scan.record.end if scan.record.state is not FileState.ACTIVE else 0)
    tail = read_tail(scan, start)
    nondurable = [header for header in tail.whole if not _is_marked(scan.record.voided, (header.offset, header.end))]
    marks = scan.marks
    verdict = scan.verdict
    problems = list(scan.problems)
    if nondurable and at_nondurable is AtNondurable.REPAIR_BY_MARK:
        marks = (_mark(nondurable),)
        verdict = max(verdict, ScanVerdict.REPAIRED)
    elif nondurable and at_nondurable is AtNondurable.REPORT:
        verdict = max(verdict, ScanVerdict.NONDURABLE_ENTRIES)
        problems.append(_beyond(nondurable, durable))
    for broken in tail.broken if at_nondurable is not AtNondurable.IGNORE else ():
        is_marked = bool(marks) or _is_marked(scan.record.voided, broken)
        verdict = max(verdict, ScanVerdict.BROKEN_AFTER_MARKED if is_marked else ScanVerdict.BROKEN_AFTER)
        what = "the tail is broken" + (", behind a mark" if is_marked else "")
        problems.append(Problem(what, *broken, is_tail=True))
    highest = max([scan.max_epoch, *(header.epoch for header in tail.whole)])
    return replace(scan, verdict=verdict, problems=tuple(problems), marks=marks, max_epoch=Epoch(highest))


def read_tail(scan: FileScan, start: int) -> FileTail:
    view, identity = scan.view, scan.record.identity
    whole: list[Header] = []
    broken: list[Range] = []
    written = len(view) if scan.record.is_recycled else extent(view, start)
    at = start
    while at < written:
        found = look(view, at, identity)
        header = found if isinstance(found, Header) else next_good(view, identity, at)
        if header is None or header.offset > at:
            broken += _written_in(view, at, header.offset if header else written, scan.record.is_recycled)
        if header is None:
            break
        whole.append(header)
        at = header.end
    return FileTail(tuple(whole), tuple(broken))


def _written_in(view: memoryview, start: int, end: int, is_recycled: bool) -> list[Range]:
    """The range as far as something was written in it. An earlier life's bytes are nothing."""
    if is_recycled:
        return []
    end = extent(view[:end], start)
    return [(start, end)] if end > start else []


def _is_marked(voided: tuple[Voided, ...], bytes_: Range) -> bool:
    return any(mark.start <= bytes_[0] and bytes_[1] <= mark.end for mark in voided)


def _mark(nondurable: list[Header]) -> Voided:
    return Voided(nondurable[0].offset, nondurable[-1].end, f"not durable: epoch {nondurable[0].epoch}")


def _beyond(nondurable: list[Header], durable: Epoch) -> Problem:
    first, last = nondurable[0], nondurable[-1]
    what = f"{len(nondurable)} blocks of epochs {first.epoch} … {last.epoch} lie beyond the durable epoch {durable}"
    return Problem(what, first.offset, last.end, is_tail=True)
