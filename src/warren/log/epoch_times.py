"""Which epoch was the newest at a given time? Asked of the closing blocks that are still there.

The answer is as fine as the marks: wall time is noted at most every 100 ms. A time before the first mark that is left
is `Gone`: the horizon has passed it.
"""

from __future__ import annotations

from collections.abc import Iterator

from warren.base.errors import Gone
from warren.base.ids import Epoch
from warren.durability.closing import read_closing
from warren.durability.wall_times import epoch_at
from warren.files.protocol import Files
from warren.log.file_header import FileKind
from warren.log.file_lookup import open_record
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest_state import ManifestState
from warren.log.scan import counted
from warren.records.block import Header
from warren.records.format import BlockKind
from warren.records.walk import walk


def marks_of(files: Files, directory: str, state: ManifestState, durable: Epoch) -> list[tuple[int, Epoch]]:
    """Every (monotone wall time, epoch) noted in the log, in order."""
    found: dict[Epoch, int] = {}
    for record in state.files.values():
        if record.purpose is not FileKind.LOG or record.state is FileState.DOOMED:
            continue
        view, _ = open_record(files, directory, record).map()
        for header in _headers(view, record):
            if header.kind == BlockKind.CLOSING and header.epoch <= durable:
                closing = read_closing(header.epoch, view[header.body_at : header.end])
                if closing.monotone_ns:
                    found[header.epoch] = closing.monotone_ns
    return [(monotone, epoch) for epoch, monotone in sorted(found.items())]


def _headers(view: memoryview, record: FileRecord) -> Iterator[Header]:
    """The blocks that count: over what was voided, as far as an active file goes by itself."""
    if record.state is FileState.ACTIVE:
        yield from walk(view, record.identity).headers
    else:
        for start, stop in counted(record, record.end):
            yield from walk(view, record.identity, start, stop).headers


def epoch_at_time(files: Files, directory: str, state: ManifestState, durable: Epoch, wall_ns: int) -> Epoch:
    """The last epoch whose noted time is not after `wall_ns`."""
    epoch = epoch_at(marks_of(files, directory, state, durable), wall_ns)
    if epoch is None:
        raise Gone(f"no epoch is known at or before that time: horizon is {state.horizon}", "ask for a later time")
    return epoch
