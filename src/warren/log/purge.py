"""Purge: letting go of free files, in an order no power cut and no reader can spoil.

    1  manifest: these files are doomed, the horizon is H, the chain's anchor is D
    2  pins are read again: a doomed file that somebody pinned meanwhile stays until the pin goes
    3  names are removed (or handed to the recycle pool), the directory is synced
    4  manifest: the files are dropped

A crash behind 1 or 3 leaves doomed files: the next purge goes on with them, whether they are still there or not.
History is cut off at its old end only, so that what remains has no gap, and never where a live pin reads.

When the disk is short of free space (`free_bytes_min`, or writers wait for room, or the ballast is in use), history
yields, oldest first, until a quarter more than that is free. Pinned files and the quarantine do not yield: as long as
the shortage lasts, `shortage` names them.

A file that a pin was ever seen to hold counts as handed out and is not recycled: a reader whose pin has lapsed may
still have it mapped, and must see old bytes or none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from warren.base.clock import Clock
from warren.base.ids import Epoch
from warren.base.steady_instants import SteadyInstants
from warren.base.threads import Condition
from warren.files.protocol import Files, join
from warren.files.recycle import RecyclePool
from warren.log.file_header import FileKind
from warren.log.file_record import FileRecord, FileState
from warren.log.layout import epoch_of_name
from warren.log.lives import FileLifecycle, is_held, lives, reach
from warren.log.manifest import Manifest
from warren.log.manifest_state import Change, ManifestState, drop_change, file_change, set_change
from warren.log.pins import Pin, Pins
from warren.log.quarantine import quarantine_shortage
from warren.log.settings import LogSettings

FREE_SLACK = 4  # history yields until such a share more than the minimum is free, so that a purge is worth its syncs


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
        """`missing_bytes`: free space that writers need at this moment and do not find; 0 if they do."""
        self._files = files
        self._directory = directory
        self._clock = clock
        self._upkeep = upkeep  # no job reads what goes
        self._manifest = manifest
        self._pins = pins
        self._settings = settings
        self._pool = pool
        self._missing_bytes = missing_bytes
        self._sealed = SteadyInstants(clock)  # when each file was sealed
        self._noted_ns: int | None = None  # monotonic: when ages were noted last
        self.begun = self.ended = 0  # runs
        self.shortage: list[str] = []  # what keeps space that the disk is short of, by name

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
        self._doom(self._of_life(FileLifecycle.FREE, self._pins.live(), self._short_bytes()))
        purged = self._remove_doomed()
        self.shortage = self._kept_in_shortage() if self._short_bytes() else []
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

    def _kept_in_shortage(self) -> list[str]:
        state, history = self._manifest.state, self._of_life(FileLifecycle.FREE, [], sys.maxsize)
        held = [(pin, sum(r.end for r in history if is_held(state, r, [pin]))) for pin in self._pins.live()]
        told = [
            f"the disk is short of space, and pin {pin.id} of {pin.reader} keeps {size} bytes of history"
            for pin, size in held
            if size
        ]
        set_aside = quarantine_shortage(self._files, self._directory)
        return [*told, *([set_aside] if set_aside else [])]

    def _note_handed_out(self) -> None:
        if self._pool is None or not (pins := self._pins.every()):
            return
        state = self._manifest.state
        logs = [r for r in state.files.values() if r.purpose is FileKind.LOG and r.state is not FileState.ACTIVE]
        fresh = [record for record in logs if not record.is_handed_out and is_held(state, record, pins)]
        if fresh:
            self._manifest.commit([file_change(record.changed(is_handed_out=True)) for record in fresh])

    def _of_life(self, life: FileLifecycle, pins: list[Pin], release_bytes: int = 0) -> list[FileRecord]:
        state, settings = self._manifest.state, self._settings
        now, limits = self._clock.monotonic_ns(), (settings.retention_seconds, settings.retention_bytes)
        found = lives(state, pins, now, *limits, release_bytes, self._sealed_ns)
        return [record for number, record in sorted(state.files.items()) if found[number] is life]

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
        going = [record for record in doomed if not is_held(state, record, pins)]
        for record in going:
            self._remove(record)
        self._remove_epoch_files()
        if going:
            self._files.sync_directory(self._directory)
            self._manifest.commit([drop_change(record.number) for record in going])
        freed = sum(record.end for record in going)
        pinned = sum(record.end for record in self._of_life(FileLifecycle.PINNED, pins))
        return PurgeResult(tuple(record.name for record in going), freed, self._manifest.state.horizon, pinned)

    def _remove(self, record: FileRecord) -> None:
        path = join(self._directory, record.name)
        if not self._files.exists(path):
            return  # a purge before a crash came this far
        may_recycle = record.purpose is FileKind.LOG and not record.is_handed_out
        if not (may_recycle and self._pool is not None and self._pool.offer(path)):
            self._files.remove(path)

    def _remove_epoch_files(self) -> None:
        """A rotated epoch file goes with the log files it was rotated with."""
        for name in self._files.list(self._directory):
            epoch = epoch_of_name(name)
            if epoch is not None and epoch <= self._manifest.state.horizon:
                self._files.remove(join(self._directory, name))

    def _revoke_over_cap(self) -> None:
        """A pin holds back no more bytes than it may, whoever else holds them, too."""
        state, unpinned = self._manifest.state, self._of_life(FileLifecycle.FREE, [])
        for pin in self._pins.live():
            held = sum(record.end for record in unpinned if is_held(state, record, [pin]))
            if pin.bytes_max and held > pin.bytes_max:
                self._pins.revoke(pin.id)


def horizon_change(state: ManifestState, going: list[FileRecord]) -> list[Change]:
    """History ends behind the newest file that goes."""
    reached = max(reach(state, record) for record in going)
    return [set_change(horizon=reached[0], horizon_digest=reached[1])] if reached[0] > state.horizon else []
