"""The log's part in every commit: who takes part, what is witnessed, when files change.

The witness names every file that the manifest calls active, with its end as of the durable epoch. During a rotation
that is the old and the new files together, until the manifest has sealed the old ones: whichever of the two a power
cut leaves newer, the other can be checked against it.

With the witness, ten times a second at most, the system is told to use its memory of older bytes for something else.
They are read again rarely; pages that were in use are cheaper than new ones, above all in a virtual machine whose host
has to find them first (decision 0022).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warren.base.ids import Epoch
from warren.base.threads import Threads
from warren.durability.epoch_file import DurableRecord, EpochFile
from warren.durability.group_commit import GroupCommit
from warren.durability.participant import LogFile
from warren.files.protocol import Files, join, parent
from warren.log.ballast import DiskReserve
from warren.log.channel import LogChannel
from warren.log.layout import EPOCH, rotated_epoch_name
from warren.log.manifest import Manifest


class EpochFileWriter:
    """The epoch file in use, and the files it speaks of."""

    def __init__(self, files: Files, directory: str, threads: Threads, manifest: Manifest, sequence: int) -> None:
        self._files = files
        self._path = join(directory, EPOCH)
        self._manifest = manifest
        self._lock = threads.condition()
        self._file: EpochFile | None = None
        self._sequence = sequence
        self.speaks_of: list[LogFile] = []

    def speak_of(self, participant: LogFile) -> None:
        with self._lock:
            if participant not in self.speaks_of:
                self.speaks_of.append(participant)

    def no_longer_speak_of(self, participant: LogFile) -> None:
        with self._lock:
            self.speaks_of.remove(participant)

    def write(self, commit: GroupCommit) -> None:
        """Say what is durable now, and sync it."""
        with self._lock:
            if self._file is not None:
                self._file.write(self._witness(commit))
                self._file.sync()

    def create(self, commit: GroupCommit) -> None:
        """A new epoch file, whose name the caller syncs."""
        with self._lock:
            self._file = EpochFile.create(self._files, self._path, self._witness(commit))

    def rename(self, durable: Epoch) -> None:
        """Rotate the epoch file away under its epoch's name. May be repeated."""
        with self._lock:
            if self._file is not None:
                self._sequence = self._file.sequence
                self._file.close()
                self._file = None
            if self._files.exists(self._path):
                self._files.rename(self._path, join(parent(self._path), rotated_epoch_name(durable)))

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _witness(self, commit: GroupCommit) -> DurableRecord:
        edits = self._manifest.state.edits
        with commit.gate:  # an epoch and the ends it gave the files belong together
            ends = tuple(participant.durable_end for participant in self.speaks_of)
            durable, digest, marks = commit.durable, commit.digest, commit.marks
            wall, monotone = marks.wall_ns, marks.monotone_ns
        return DurableRecord(commit.timeline, durable, digest, edits, wall, monotone, ends, self._sequence)


class LogCommitHooks:
    """Joins channels, rotation and witness to the group commit."""

    def __init__(
        self, channels: Sequence[LogChannel], witnesses: EpochFileWriter, ballast: DiskReserve, page_cache_bytes: int
    ) -> None:
        self._channels = channels
        self._witnesses = witnesses
        self._ballast = ballast
        self._page_cache_bytes = page_cache_bytes
        self.commit: GroupCommit | None = None  # set right after the commit is made: the two know each other
        self.rotate_if_due: Callable[[], Callable[[], None] | None] = lambda: None

    def gather(self) -> list[LogFile]:
        assert self.commit is not None
        epoch = self.commit.open_epoch
        taken = [channel.take_participant(epoch) for channel in self._channels]
        return [participant for participant in taken if participant is not None]

    def at_switch(self) -> Callable[[], None] | None:
        return self.rotate_if_due()

    def make_room(self) -> bool:
        return self._ballast.give_back()

    def witness(self) -> None:
        assert self.commit is not None
        self._witnesses.write(self.commit)
        if self._page_cache_bytes:
            for channel in self._channels:
                channel.participant.forget(self._page_cache_bytes)
