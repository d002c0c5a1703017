"""Retention: how long a sealed file stays, the pins of readers, and the purge of free files.

    needed     recovery reads it: a log file that is neither compacted nor reflected yet or that a stream's base has not
               passed, the compacted file in force, the start-up snapshot in force
    retained   history reads it: the raw log and replaced compacted files, for `retention_seconds` and up to
               `retention_bytes`, whichever ends first
    pinned     a reader has a lease on it
    free       none of these

History is purged from its old end only, and by whole epoch ranges: from one compacted file to the next, which together
with the log between them show every moment of that time, and without any of them none. So every epoch behind the
horizon can be cut (log/checkpoint). A range is too old when its newest file is, whatever the clock said in between.
Retention counts the bytes in use of a file: a file that was sealed with little in it does not displace the history of
others.

Purge, in an order that is safe for power cuts and readers:

    1  manifest: these files are doomed, the horizon is H, the chain's anchor is D
    2  pins are read again: a doomed file that was pinned meanwhile stays until the pin is released
    3  names are removed (or handed to the recycle pool), the directory is synced
    4  manifest: the files are dropped

A crash behind 1 or 3 leaves doomed files: the next purge continues with them, whether they still exist or not. What
remains has no gap, and no live pin loses what it reads. When the disk is short of free space (`free_bytes_min`, or
writers wait for room, or the disk reserve is in use), history is purged, oldest first, until a quarter more than that
is free (`release_bytes`). Pinned files and the quarantine are not; while the shortage lasts, `shortage` names them.

Pins, a reader's lease on files that would otherwise be purged:

    pins/<id>.json     { reader, timeline, from_epoch, files, expires_ns, bytes_max }

A pin is a file, so that any process can take one, whether the store's owner runs or not. It protects the files it names
and everything from `from_epoch` on, until it expires; a live reader renews it. A reader that comes too late, or was too
slow, gets "gone, horizon is H": never a gap. Expiry is written as wall time, since several processes read it. Each
process translates it to its monotonic clock when it first reads it: a step of the wall clock lapses no pin that was
known before. A file that a pin was ever seen to protect counts as handed out and is not recycled: a reader whose pin
has lapsed may still have it mapped, and must see old bytes or none.

Reader and purge need no lock, because each writes before it reads: the reader writes its pin, then reads the manifest;
the purge writes `doomed` into the manifest, then reads the pins. In any order of the four, either the purge sees the
pin and leaves the bytes, or the reader sees that they are doomed and does not begin.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import groupby

from warren.base.environment import Clock, Random, SteadyInstants
from warren.base.errors import Gone, NotFound, Refused
from warren.base.ids import Epoch, FileNumber, StreamId, TimelineId
from warren.base.threads import Condition
from warren.files import atomic
from warren.files.protocol import Files, base_name, join
from warren.log.compaction.compaction import has_key_values
from warren.log.file_record import PINS, FileKind, FileRecord, FileState, epoch_of_name
from warren.log.log_files import RecyclePool
from warren.log.manifest import Change, Manifest, ManifestState, drop_change, file_change, read_manifest, set_change
from warren.log.recovery import quarantine_shortage
from warren.log.settings import LogSettings

PIN_SUFFIX = ".json"
_NAME = re.compile(r"[0-9a-f]{16}\.json")


@dataclass(frozen=True, slots=True)
class Pin:
    id: str
    reader: str
    timeline: TimelineId
    from_epoch: Epoch | None  # None: only the files it names
    files: tuple[FileNumber, ...]
    expires_ns: int
    bytes_max: int  # 0: no cap


class Pins:
    def __init__(self, files: Files, directory: str, clock: Clock, rng: Random) -> None:
        self._files = files
        self._directory = directory
        self._home = join(directory, PINS)
        self._clock = clock
        self._rng = rng
        self._expiries = SteadyInstants(clock)

    def take(
        self,
        reader: str,
        seconds: float,
        from_epoch: Epoch | None = None,
        numbers: Iterable[FileNumber] = (),
        bytes_max: int = 0,
        timeline: TimelineId | None = None,
    ) -> tuple[Pin, ManifestState]:
        """Write a pin, then read the manifest: both; the files of that manifest are safe from now on."""
        state = read_manifest(self._files, self._directory)
        if timeline is not None and from_epoch is not None:
            state.timeline.admit(timeline, from_epoch)
        expires_ns = self._clock.wall_ns() + int(seconds * 1e9)
        identity = f"{self._rng.id64():016x}"
        pin = Pin(identity, reader, state.timeline.id, from_epoch, tuple(numbers), expires_ns, bytes_max)
        self._remaining_ns(pin)
        self._write(pin)
        state = read_manifest(self._files, self._directory)
        try:
            check_not_gone(state, from_epoch, pin.files)
        except Gone:
            self.release(pin)
            raise
        return pin, state

    def renew(self, pin: Pin, seconds: float) -> Pin:
        """Extend the lease. A pin that was revoked or has lapsed cannot be renewed: its files may be gone."""
        if self._has_lapsed(pin) or not self._files.exists(self._path(pin.id)):
            raise self._lapsed(pin)
        lapses_ns = self._clock.monotonic_ns() + self._remaining_ns(pin)
        renewed = replace(pin, expires_ns=self._clock.wall_ns() + int(seconds * 1e9))
        self._remaining_ns(renewed)
        self._write(renewed)
        # Written, then checked: a purge that considered the old pin lapsed or revoked is visible in the manifest.
        if self._clock.monotonic_ns() > lapses_ns:
            self.release(renewed)
            raise self._lapsed(pin)
        try:
            check_not_gone(read_manifest(self._files, self._directory), pin.from_epoch, pin.files)
        except Gone:
            self.release(renewed)
            raise
        return renewed

    def seconds_left(self, pin: Pin) -> float:
        """Until it lapses; negative if it has."""
        return self._remaining_ns(pin) / 1e9

    def _remaining_ns(self, pin: Pin) -> int:
        return self._expiries.monotonic_ns(pin.id, pin.expires_ns) - self._clock.monotonic_ns()

    def _has_lapsed(self, pin: Pin) -> bool:
        return self._remaining_ns(pin) < 0

    def _lapsed(self, pin: Pin) -> Gone:
        horizon = read_manifest(self._files, self._directory).horizon
        return Gone(
            f"the pin of {pin.reader} has lapsed: horizon is {horizon}", f"begin again at epoch {horizon + 1} or later"
        )

    def release(self, pin: Pin) -> None:
        self.revoke(pin.id)

    def revoke(self, identity: str) -> None:
        self._expiries.forget(identity)
        for path in (self._path(identity), self.parts_path(identity)):
            with suppress(NotFound):  # it has no parts, or another process was quicker
                self._files.remove(path)

    def find(self, identity: str) -> Pin | None:
        """The pin of this id, lapsed or not; None if it was released."""
        return self._read(base_name(self._path(identity)))

    def parts_path(self, identity: str) -> str:
        """The file in which the tasks of one reader note that they have ended (pipeline/planning)."""
        return join(self._home, f"{identity}.parts")

    def every(self) -> list[Pin]:
        """Every pin, lapsed ones too. Other files are skipped."""
        names = self._files.list(self._home) if self._files.exists(self._home) else []
        found = [pin for name in names if _NAME.fullmatch(name) and (pin := self._read(name)) is not None]
        self._expiries.keep({pin.id for pin in found})
        return found

    def live(self) -> list[Pin]:
        return [pin for pin in self.every() if not self._has_lapsed(pin)]

    def drop_lapsed(self) -> list[Pin]:
        lapsed = [pin for pin in self.every() if self._has_lapsed(pin)]
        for pin in lapsed:
            self.revoke(pin.id)
        return lapsed

    def _path(self, identity: str) -> str:
        return join(self._home, f"{identity}{PIN_SUFFIX}")

    def _write(self, pin: Pin) -> None:
        self._files.make_directories(self._home)
        atomic.replace(self._files, self._path(pin.id), [json.dumps(asdict(pin)).encode()])

    def _read(self, name: str) -> Pin | None:
        path = join(self._home, name)
        try:
            file = self._files.open(path)
        except NotFound:
            return None  # released meanwhile
        try:
            raw = json.loads(file.read_at(0, file.size()))
            return Pin(**{**raw, "files": tuple(raw["files"])})
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(f"{path} is not a pin: {error}", "remove it if no reader owns it") from error
        finally:
            file.close()


def check_not_gone(state: ManifestState, from_epoch: Epoch | None, numbers: Sequence[FileNumber]) -> None:
    hint = f"begin at epoch {state.horizon + 1} or later"
    if from_epoch is not None and from_epoch <= state.horizon:
        raise Gone(f"epoch {from_epoch} is gone, horizon is {state.horizon}", hint)
    for number in numbers:
        record = state.files.get(number)
        if record is None or record.state is FileState.DOOMED:
            raise Gone(f"log file {number} is gone, horizon is {state.horizon}", hint)


class FileLifecycle(StrEnum):
    ACTIVE = "active"
    NEEDED = "needed"
    RETAINED = "retained"
    PINNED = "pinned"
    FREE = "free"


def is_needed(state: ManifestState, record: FileRecord) -> bool:
    if record.state is FileState.DOOMED:
        return False
    if record.purpose is FileKind.COMPACTED:
        return record.number in state.compacted
    if record.purpose is FileKind.SNAPSHOT:
        return record.number == state.snapshot
    # A purged file moves the horizon to where it was sealed: everything up to there must be in the store.
    is_settled = max(record.last_epoch, record.sealed_epoch) <= state.reflected or any(
        record.number in state.files[number].sources for number in state.compacted
    )
    for stream_id, last_lsn in record.stream_ends:
        stream = state.streams[StreamId(stream_id)]
        if last_lsn >= stream.base if stream.is_records else not is_settled:
            return True
    return False


def lifecycle_states(
    state: ManifestState,
    pins: Sequence[Pin],
    now_ns: int,
    retention_seconds: float,
    retention_bytes: int,
    release_bytes: int = 0,
    sealed_ns: Callable[[FileRecord], int] = lambda record: record.sealed_ns,
) -> dict[FileNumber, FileLifecycle]:
    """The life cycle state of every file in the manifest. `release_bytes`: so much of the history becomes free anyway.
    `sealed_ns`: when a file was sealed, by the clock of `now_ns`; the wall clock unless it is given."""
    found = {record.number: _unpinned_state(state, record) for record in state.files.values()}
    history = [record for record in state.files.values() if found[record.number] is FileLifecycle.RETAINED]
    old = {record.number for record in history if now_ns - sealed_ns(record) >= retention_seconds * 1e9}
    over = _over(state, history, old, retention_bytes)
    over += [record for record in _released(state, history, pins, release_bytes) if record not in over]
    going = [record for record in over if not is_pinned(state, record, pins)]
    edge = max((reach(state, record)[0] for record in going), default=state.horizon)
    for record in history:
        if record in over or reach(state, record)[0] <= edge:
            found[record.number] = FileLifecycle.FREE
    for record in state.files.values():
        if found[record.number] is FileLifecycle.FREE and is_pinned(state, record, pins):
            found[record.number] = FileLifecycle.PINNED
    return found


def _unpinned_state(state: ManifestState, record: FileRecord) -> FileLifecycle:
    """Without regard to age and pins."""
    if record.state is FileState.ACTIVE:
        return FileLifecycle.ACTIVE
    if is_needed(state, record):
        return FileLifecycle.NEEDED
    is_history = record.state is not FileState.DOOMED and record.purpose is not FileKind.SNAPSHOT
    return FileLifecycle.RETAINED if is_history else FileLifecycle.FREE


def _over(state: ManifestState, history: list[FileRecord], old: set[FileNumber], size: int) -> list[FileRecord]:
    """What is too old, or too much when counted from the newest back; range by range."""
    over: list[FileRecord] = []
    retained_bytes = 0
    by_reach = sorted(history, key=lambda record: reach(state, record), reverse=True)
    for _, group in groupby(by_reach, key=lambda record: reach(state, record)):
        epoch_range = list(group)
        retained_bytes += sum(record.end for record in epoch_range)
        is_old = all(record.number in old for record in epoch_range)
        if is_old or retained_bytes > size:
            over += epoch_range
    return over


def _released(
    state: ManifestState, history: list[FileRecord], pins: Sequence[Pin], release_bytes: int
) -> list[FileRecord]:
    """The oldest ranges, until the files that no pin protects have so many bytes."""
    released: list[FileRecord] = []
    free_bytes = 0
    by_reach = sorted(history, key=lambda record: reach(state, record)) if release_bytes > 0 else []
    for _, group in groupby(by_reach, key=lambda record: reach(state, record)):
        if free_bytes >= release_bytes:
            break
        epoch_range = list(group)
        released += epoch_range
        free_bytes += sum(disk_bytes(state, record) for record in epoch_range if not is_pinned(state, record, pins))
    return released


def disk_bytes(state: ManifestState, record: FileRecord) -> int:
    """Space that the removal of a file frees: of a log file whole containers, since it is allocated ahead by them."""
    if record.purpose is not FileKind.LOG:
        return record.end
    containers = max(state.initial_containers, -(-record.end // state.container_bytes))
    return containers * state.container_bytes


def is_pinned(state: ManifestState, record: FileRecord, pins: Sequence[Pin]) -> bool:
    """A pin protects the files it names, and those whose purge would move the horizon to where it reads, or past it."""
    epoch, _ = reach(state, record)
    return any(record.number in pin.files or (pin.from_epoch is not None and pin.from_epoch <= epoch) for pin in pins)


def reach(state: ManifestState, record: FileRecord) -> tuple[Epoch, str]:
    """Up to where history is purged with a file, and the chain's digest there: for key-values, to the compacted file
    that ends the range they belong to, unless that is purged already."""
    own = (record.sealed_epoch, record.sealed_digest)
    if record.purpose is FileKind.SNAPSHOT:
        return Epoch(0), ""
    if not has_key_values(record):
        return own
    is_base = record.purpose is FileKind.COMPACTED
    bases = [(r.sealed_epoch, r.sealed_digest) for r in state.files.values() if r.purpose is FileKind.COMPACTED]
    end = min((base for base in bases if base[0] > own[0] or (base[0] == own[0] and not is_base)), default=own)
    return end if end[0] > state.horizon else own


FREE_SLACK = 4  # history is purged until such a share more than the minimum is free, so that a purge is worth its syncs


@dataclass(frozen=True, slots=True)
class PurgeResult:
    files: tuple[str, ...]
    freed_bytes: int
    horizon: Epoch
    pinned_bytes: int


class FilePurge:
    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        upkeep: Condition,
        manifest: Manifest,
        pins: Pins,
        settings: LogSettings,
        pool: RecyclePool | None,
        missing_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`missing_bytes`: free space that writers need at this moment and do not have; 0 if they do."""
        self._files = files
        self._directory = directory
        self._clock = clock
        self._upkeep = upkeep  # no job reads what is removed
        self._manifest = manifest
        self._pins = pins
        self._settings = settings
        self._pool = pool
        self._missing_bytes = missing_bytes
        self._sealed = SteadyInstants(clock)  # when each file was sealed
        self._noted_ns: int | None = None  # monotonic: when ages were noted last
        self.begun = self.ended = 0  # runs
        self.shortage: list[str] = []  # what takes space while the disk is short of it, by name

    def run(self) -> PurgeResult:
        with self._upkeep:
            self.begun += 1
            try:
                return self._run()
            finally:
                self.ended += 1

    def _run(self) -> PurgeResult:
        self._note_sealed()
        self._note_handed_out()
        self._pins.drop_lapsed()
        self._revoke_over_cap()
        self._doom(self._in_state(FileLifecycle.FREE, self._pins.live(), self._short_bytes()))
        purged = self._remove_doomed()
        self.shortage = self._retained_in_shortage() if self._short_bytes() else []
        return purged

    def _short_bytes(self) -> int:
        """How much free space is missing; 0 if the disk has enough."""
        missing, least = self._missing_bytes(), self._settings.free_bytes_min
        if not missing and not least:
            return 0
        free = self._files.free_bytes(self._directory)
        if not missing and free >= least:
            return 0
        return max(0, max(least + least // FREE_SLACK, missing) - free)

    def _retained_in_shortage(self) -> list[str]:
        state, history = self._manifest.state, self._in_state(FileLifecycle.FREE, [], sys.maxsize)
        pinned = [(pin, sum(r.end for r in history if is_pinned(state, r, [pin]))) for pin in self._pins.live()]
        alarms = [
            f"the disk is short of space, and pin {pin.id} of {pin.reader} keeps {size} bytes of history"
            for pin, size in pinned
            if size
        ]
        set_aside = quarantine_shortage(self._files, self._directory)
        return [*alarms, *([set_aside] if set_aside else [])]

    def _note_handed_out(self) -> None:
        if self._pool is None or not (pins := self._pins.every()):
            return
        state = self._manifest.state
        logs = [r for r in state.files.values() if r.purpose is FileKind.LOG and r.state is not FileState.ACTIVE]
        fresh = [record for record in logs if not record.is_handed_out and is_pinned(state, record, pins)]
        if fresh:
            self._manifest.commit([file_change(record.changed(is_handed_out=True)) for record in fresh])

    def _in_state(self, wanted: FileLifecycle, pins: list[Pin], release_bytes: int = 0) -> list[FileRecord]:
        state, settings = self._manifest.state, self._settings
        now, limits = self._clock.monotonic_ns(), (settings.retention_seconds, settings.retention_bytes)
        found = lifecycle_states(state, pins, now, *limits, release_bytes, self._sealed_ns)
        return [record for number, record in sorted(state.files.items()) if found[number] is wanted]

    def _note_sealed(self) -> None:
        """Note the age of every file that is new since the last run: it was sealed since, whatever the wall clock says.
        In the first run the wall clock is all there is."""
        since_ns, self._noted_ns = self._noted_ns, self._clock.monotonic_ns()
        files = self._manifest.state.files
        for record in files.values():
            self._sealed.monotonic_ns(record.number, record.sealed_ns, since_ns)
        self._sealed.keep(files.keys())

    def _sealed_ns(self, record: FileRecord) -> int:
        return self._sealed.monotonic_ns(record.number, record.sealed_ns)

    def _doom(self, free: list[FileRecord]) -> None:
        fresh = [record for record in free if record.state is not FileState.DOOMED]
        if not fresh:
            return
        changes: list[Change] = [file_change(record.changed(state=FileState.DOOMED)) for record in fresh]
        changes += horizon_change(self._manifest.state, fresh)
        self._manifest.commit(changes)

    def _remove_doomed(self) -> PurgeResult:
        pins = self._pins.live()
        state = self._manifest.state
        doomed = state.of_state(FileState.DOOMED)
        going = [record for record in doomed if not is_pinned(state, record, pins)]
        for record in going:
            self._remove(record)
        self._remove_epoch_files()
        if going:
            self._files.sync_directory(self._directory)
            self._manifest.commit([drop_change(record.number) for record in going])
        freed = sum(record.end for record in going)
        pinned = sum(record.end for record in self._in_state(FileLifecycle.PINNED, pins))
        return PurgeResult(tuple(record.name for record in going), freed, self._manifest.state.horizon, pinned)

    def _remove(self, record: FileRecord) -> None:
        path = join(self._directory, record.name)
        if not self._files.exists(path):
            return  # removed by a purge that a crash has interrupted
        may_recycle = record.purpose is FileKind.LOG and not record.is_handed_out
        if not (may_recycle and self._pool is not None and self._pool.offer(path)):
            self._files.remove(path)

    def _remove_epoch_files(self) -> None:
        """A rotated epoch file is removed with the log files it was rotated with."""
        for name in self._files.list(self._directory):
            epoch = epoch_of_name(name)
            if epoch is not None and epoch <= self._manifest.state.horizon:
                self._files.remove(join(self._directory, name))

    def _revoke_over_cap(self) -> None:
        """Revoke a pin that protects more bytes than its limit, also if other pins protect them too."""
        state, unpinned = self._manifest.state, self._in_state(FileLifecycle.FREE, [])
        for pin in self._pins.live():
            size = sum(record.end for record in unpinned if is_pinned(state, record, [pin]))
            if pin.bytes_max and size > pin.bytes_max:
                self._pins.revoke(pin.id)


def horizon_change(state: ManifestState, going: list[FileRecord]) -> list[Change]:
    """The horizon moves behind the newest file that is purged."""
    reached = max(reach(state, record) for record in going)
    return [set_change(horizon=reached[0], horizon_digest=reached[1])] if reached[0] > state.horizon else []
