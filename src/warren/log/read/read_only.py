"""Reading a log directory without owning it: beside a running store, or when none runs.

    epoch file first, manifest second: the manifest is then at least as new as the witness, and names every file that
    the witness names

Only epochs up to the epoch file's durable one may be read: later ones are in the page cache, and a power cut may still
take them back. A rotation renames files meanwhile: log/log_files opens them under any of their names.

`epoch_at_time`: the newest epoch at a given time, from the closing blocks that are still there. The answer is as fine
as the marks: wall time is noted at most every 100 ms. A time before the first remaining mark is `Gone`: the horizon has
passed it.

`changes`: notification that something in a log directory has changed, by inotify through watchfiles.

    for _ in changes(directory, ended):        changes close to one another come as one
        …read what is new (log/read/tail, snapshot/puller/process)

A change carries no data: the durable epoch is in the epoch file, and writing that is such a change. The first
notification comes when the watch is set up: nothing is missed between reading and watching.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import Epoch, FileNumber
from warren.durability.closing_block import epoch_at, read_closing
from warren.durability.epoch_file import DurableRecord
from warren.durability.log_file import FileEnd
from warren.files.protocol import Files, join
from warren.log.file_record import MANIFEST, FileKind, FileRecord, FileState
from warren.log.log_files import horizon_if_gone, open_record
from warren.log.manifest import ManifestState, read_manifest
from warren.log.read.blocks import BlockCursor, readable_ranges
from warren.log.read.scan import LogInput, witnessed_end
from warren.log.recovery import newest_witness
from warren.records.block import Header
from warren.records.format import BlockKind

TRIES = 5


@dataclass(frozen=True, slots=True)
class ReadOnlyLog:
    """A log directory as it was at one moment."""

    files: Files
    directory: str
    state: ManifestState
    witness: DurableRecord | None
    problems: tuple[str, ...] = field(default=())  # problems of epoch files that a newer one supersedes

    @property
    def durable(self) -> Epoch:
        """The horizon: nothing beyond it is shown."""
        return Epoch(max(self.state.durable, self.witness.durable if self.witness else 0))

    def is_gone(self, record: FileRecord) -> bool:
        """Whether a running store has purged the file since its manifest was read."""
        return horizon_if_gone(self.files, self.directory, record) is not None

    def witnessed(self, record: FileRecord) -> FileEnd | None:
        return witnessed_end(self.witness.ends if self.witness else (), record)

    def durable_ends(self) -> dict[FileNumber, int]:
        """The durable end of each file that was active then."""
        return {end.number: end.end for end in self.witness.ends} if self.witness else {}

    def records(self) -> list[FileRecord]:
        """Every file that is part of the store, oldest first."""
        return [record for _, record in sorted(self.state.files.items()) if record.state is not FileState.DOOMED]

    def input_of(self, record: FileRecord) -> LogInput:
        return LogInput(self.files, self.directory, record, self.durable, witnessed=self.witnessed(record))


def open_for_reading(files: Files, directory: str) -> ReadOnlyLog:
    """Take no lock and change nothing."""
    if not files.exists(join(directory, MANIFEST)):
        raise Refused(f"{directory} is no log directory: it has no {MANIFEST}", "name the directory of a log store")
    for left in reversed(range(TRIES)):
        try:
            return _read(files, directory)
        except (Damage, Refused):
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _read(files: Files, directory: str) -> ReadOnlyLog:
    timeline = read_manifest(files, directory)
    witness, problems = newest_witness(files, directory, timeline)
    state = read_manifest(files, directory)
    if witness is not None and state.edits < witness.manifest_edits:
        path = join(directory, MANIFEST)
        raise Damage(f"the manifest ends with edit {state.edits}, {witness.manifest_edits} were synced", path, 0)
    return ReadOnlyLog(files, directory, state, witness, tuple(problems))


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
    """The blocks that count: over what was voided, an active file up to its last good block."""
    for start, stop in readable_ranges(view, record):
        yield from BlockCursor(view, record.identity, start, stop)


def epoch_at_time(files: Files, directory: str, state: ManifestState, durable: Epoch, wall_ns: int) -> Epoch:
    """The last epoch whose noted time is not after `wall_ns`."""
    epoch = epoch_at(marks_of(files, directory, state, durable), wall_ns)
    if epoch is None:
        raise Gone(f"no epoch is known at or before that time: horizon is {state.horizon}", "ask for a later time")
    return epoch


QUIET_MS = 20  # changes closer together than this are reported together
SETTLED_MS = 100


class WatchEnded(Protocol):
    """Set, from any thread, to end a watch. A `threading.Event` is one."""

    def is_set(self) -> bool: ...


def changes(directory: str, ended: WatchEnded) -> Iterator[None]:
    """Once at the beginning, and then whenever something in the directory has changed."""
    from watchfiles import watch

    watching = watch(
        directory,
        watch_filter=None,
        debounce=SETTLED_MS,
        step=QUIET_MS,
        stop_event=ended,
        recursive=False,
        yield_on_timeout=True,
        rust_timeout=QUIET_MS,
        raise_interrupt=False,
    )
    is_first = True
    for seen in watching:
        if seen or is_first:
            is_first = False
            yield
