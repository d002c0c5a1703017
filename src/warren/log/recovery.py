"""Judging what a stop left behind: which epoch is durable, where each active file really ends.

Three witnesses, strongest first
1. The epoch file: up to its `durable` everything was synced, and each file reached at least the end it names. What is
   missing or different below that is damage, and the start stops there.
2. The log itself: a good block of epoch m was not written before everything below m was durable. So every epoch of this
   run below the highest one seen must be whole, or it is damage.
3. The closing blocks: the highest epoch seen is durable if and only if every part its closing block names verifies. If
   not, a power cut caught it on the way: it was never confirmed, and it is voided.

Plain functions over views of files; nothing is written here (log/opening does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warren.base.errors import Damage
from warren.base.ids import Epoch
from warren.durability.closing import Closing, read_closing
from warren.durability.epoch_file import DurableRecord
from warren.durability.participant import FileEnd
from warren.log.file_header import FILE_HEADER_BYTES
from warren.log.file_record import FileRecord, Voided
from warren.records.block import Header, require_known_format
from warren.records.format import BlockKind
from warren.records.walk import BlockWalk, extent, next_good, walk


@dataclass(frozen=True, slots=True)
class ExaminedFiles:
    """One active file, walked from its first block to where good blocks end."""

    record: FileRecord
    path: str
    view: memoryview
    walked: BlockWalk
    behind: tuple[Header, ...]  # good blocks of this life behind the place where the walk stopped
    extent: int  # end of what was written in this life


@dataclass(frozen=True, slots=True)
class VerifiedEpoch:
    """The valid part of an active file, and what does not count."""

    examined: ExaminedFiles
    end: FileEnd
    headers: tuple[Header, ...]
    voided: Voided | None


@dataclass(frozen=True, slots=True)
class DurableJudgement:
    durable: Epoch
    digest: bytes
    highest_seen: Epoch
    files: tuple[VerifiedEpoch, ...]
    monotone_ns: int


def examine(record: FileRecord, path: str, view: memoryview) -> ExaminedFiles:
    walked = walk(view, record.identity)
    if not walked.headers or walked.headers[0].kind != BlockKind.FILE_HEADER:
        raise Damage("an active log file does not begin with its file header", path, 0)
    for header in walked.headers:
        require_known_format(header, path)
    behind: list[Header] = []
    # Behind zeros too: of two sectors the second may have reached the disk and the first not, and its number is used.
    written_to = extent(view, walked.end)
    if written_to > walked.end:
        found = next_good(view, record.identity, walked.end + 8)
        while found is not None:
            behind.append(found)
            found = next_good(view, record.identity, found.end)
    # In a recycled file the bytes of its earlier life stand behind: only good blocks say how far this one came.
    last = behind[-1].end if behind else walked.end
    return ExaminedFiles(record, path, view, walked, tuple(behind), last if record.is_recycled else written_to)


def judge(
    examined: Sequence[ExaminedFiles],
    witness: DurableRecord | None,
    floor: Epoch,
    floor_digest: bytes,
    run_first: Epoch,
) -> DurableJudgement:
    """`floor` is the epoch the manifest knows to be durable; the witness, if there is one, is at least as good."""
    durable, digest = (
        (witness.durable, witness.digest) if witness and witness.durable >= floor else (floor, floor_digest)
    )
    for item in examined:
        _check_against_witness(item, witness)
        _check_order(item)
    closings = _closings(examined)
    seen = {h.epoch for item in examined for h in (*item.walked.headers, *item.behind) if h.epoch > durable}
    highest = max(seen, default=durable)
    final = durable
    for epoch in range(max(durable + 1, run_first), highest):
        _require_whole(examined, closings, Epoch(epoch))
        final = Epoch(epoch)
    if highest in closings and highest > durable and _is_whole(examined, closings[highest]):
        final = highest
    if final > durable:
        digest = closings[final].digest(examined[0].record.timeline)
    marks = [closing.monotone_ns for closing in closings.values()]
    monotone = max([witness.monotone_ns if witness else 0, *marks])
    return DurableJudgement(final, digest, highest, tuple(_verified(item, final) for item in examined), monotone)


def _check_against_witness(item: ExaminedFiles, witness: DurableRecord | None) -> None:
    # A witness from an opening which did not come to its end may name another life of this number: not this file.
    ends = witness.ends if witness else ()
    wanted = [end for end in ends if (end.number, end.identity) == (item.record.number, item.record.identity)]
    for end in wanted:
        if item.walked.end < end.end:
            raise Damage(
                f"a durable block is damaged: epoch ≤ {witness.durable if witness else 0} reached byte {end.end}, "
                f"good blocks end at byte {item.walked.end}",
                item.path,
                item.walked.end,
            )
        if _running_at(item, end.end) != end.running:
            raise Damage(
                "the blocks are not those that were synced: their running checksum differs", item.path, end.end
            )


def _check_order(item: ExaminedFiles) -> None:
    last = 0
    for header in item.walked.headers:
        if header.epoch < last:
            raise Damage(f"epoch {header.epoch} stands behind epoch {last}", item.path, header.offset)
        last = header.epoch


def _closings(examined: Sequence[ExaminedFiles]) -> dict[Epoch, Closing]:
    found: dict[Epoch, Closing] = {}
    for item in examined:
        for header in (*item.walked.headers, *item.behind):
            if header.kind == BlockKind.CLOSING:
                found[header.epoch] = read_closing(header.epoch, item.view[header.body_at : header.end])
    return found


def _is_whole(examined: Sequence[ExaminedFiles], closing: Closing) -> bool:
    by_number = {item.record.number: item for item in examined}
    for part in closing.parts:
        item = by_number.get(part.file)
        if item is None or item.record.incarnation != part.incarnation or _running_at(item, part.end) != part.running:
            return False
    return True


def _require_whole(examined: Sequence[ExaminedFiles], closings: dict[Epoch, Closing], epoch: Epoch) -> None:
    """A later epoch was written, so this one was durable: whatever is missing of it is damage."""
    if epoch in closings and _is_whole(examined, closings[epoch]):
        return
    worst = min(examined, key=lambda item: item.walked.headers[-1].epoch)
    raise Damage(
        f"epoch {epoch} was durable and is not whole: a later epoch stands in the log", worst.path, worst.walked.end
    )


def _running_at(item: ExaminedFiles, end: int) -> int | None:
    """The running checksum behind the good block that ends there."""
    if end > item.walked.end:
        return None
    for header, running in zip(item.walked.headers, item.walked.runnings, strict=True):
        if header.end == end:
            return running
    return None


def _verified(item: ExaminedFiles, durable: Epoch) -> VerifiedEpoch:
    count = sum(1 for header in item.walked.headers if header.epoch <= durable)
    headers = tuple(item.walked.headers[:count])
    end = headers[-1].end if headers else FILE_HEADER_BYTES
    running = item.walked.runnings[count - 1]
    voided = None
    if item.extent > end:
        is_torn = item.walked.end == end
        voided = Voided(
            end, item.extent, "torn" if is_torn else f"not durable: epoch {item.walked.headers[count].epoch}"
        )
    return VerifiedEpoch(item, FileEnd(item.record.number, item.record.identity, end, running), headers, voided)
