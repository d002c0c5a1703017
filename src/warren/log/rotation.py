"""Rotation: log files change at an epoch switch, and nowhere else.

    request ──queue──▶ switch of epoch E (under the gate): channels get new files, at most one request per switch
                       E durable ─▶ witness synced ─▶ pwal_0000 → pwal_0000.<number>, epoch → epoch.<E> ─▶ names synced
                                 ─▶ new files and epoch file created, synced, names synced ─▶ one manifest edit
    the answer ◀── when every session that was open at the switch has ended (or the deadline passed)

Invariants
* An epoch lies in one file of each channel, whole. Sessions that end before the switch are in the rotated files.
* No byte is written to a new file before the manifest names it, and none to an old one after it was renamed.
* The answer lists the rotated files by the manifest, never by the directory: a later rotation may have changed that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren.base.environment import Clock
from warren.base.ids import Epoch, FileNumber
from warren.durability.group_commit import GroupCommit
from warren.durability.log_file import FileEnd, LogFile
from warren.files.protocol import Files, join
from warren.log.file_record import FileKind, FileRecord, FileState, active_name, rotated_name
from warren.log.log_files import LogFileFactory
from warren.log.manifest import Change, Manifest, file_change, set_change
from warren.log.settings import LogSettings

if TYPE_CHECKING:
    from warren.log.session import Session
    from warren.log.writer import LogChannel, LogWriter


@dataclass(frozen=True, slots=True)
class RotationResult:
    epoch: Epoch  # the last epoch in the files rotated now
    rotated: tuple[FileRecord, ...]  # all rotated log files, oldest first
    is_complete: bool  # False: the deadline passed while earlier sessions were still open


@dataclass(slots=True)
class RotationRequest:
    sessions: set[Session] = field(default_factory=set)
    result: RotationResult | None = None


@dataclass(slots=True)
class FileChange:
    """One channel's change of files."""

    channel: LogChannel
    old: LogFile
    sealed: FileRecord
    new: LogFile


class Rotation:
    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        manifest: Manifest,
        log_files: LogFileFactory,
        writer: LogWriter,
        settings: LogSettings,
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._manifest = manifest
        self._log_files = log_files
        self._writer = writer
        self._channels = writer.channels
        self._commit = writer.commit
        self._epoch_file = writer.epoch_file
        self._rotate_bytes = settings.rotate_bytes
        self._releases_page_cache = settings.page_cache_bytes > 0
        self._reply_seconds_max = settings.rotation_reply_seconds_max
        self._queue: deque[RotationRequest] = deque()
        self._is_requested = False
        self.rotations = 0

    def rotate(self) -> RotationResult:
        """Request a rotation and wait for its result."""
        request = RotationRequest()
        with self._commit.gate:
            self._commit.check()
            self._queue.append(request)
        while request.result is None:
            self._commit.commit_pending()
        return self._await_sessions(request, request.result)

    def rotate_soon(self) -> None:
        """Rotate with the next commit, without waiting: on a full disk a commit waits for room."""
        with self._commit.gate:
            self._is_requested = True
        self._commit.request_commit()

    @property
    def active_bytes(self) -> int:
        """What was written to the files that are not rotated."""
        return sum(channel.participant.end for channel in self._channels if not channel.is_empty)

    def durable_ends(self) -> dict[FileNumber, int]:
        """Where what is durable ends in each active file."""
        return {channel.participant.number: channel.participant.durable_end.end for channel in self._channels}

    def at_switch(self) -> Callable[[], None] | None:
        """Under the gate: take one request, or rotate because a file has reached its size."""
        request = self._queue.popleft() if self._queue else None
        filled = [channel for channel in self._channels if not channel.is_empty]
        is_due = self._is_requested or any(channel.participant.end >= self._rotate_bytes for channel in filled)
        self._is_requested = False
        if request is None and not is_due:
            return None
        moves = [self._plan(channel) for channel in filled]
        if request is not None:
            request.sessions = set(self._writer.open_sessions)
            self._writer.awaited_sessions |= request.sessions
        steps = self._steps(moves, self._commit.closed[0], request)
        return lambda: _run(steps)

    def _plan(self, channel: LogChannel) -> FileChange:
        old = channel.participant
        record = self._manifest.state.files[old.number]
        sealed = sealed_record(record, old.taken, channel, self._clock.wall_ns(), self._commit)
        new = self._log_files.plan_log_file(channel.id)
        channel.move_to(new)
        return FileChange(channel, old, sealed, new)

    def _steps(
        self, moves: list[FileChange], epoch: Epoch, request: RotationRequest | None
    ) -> deque[Callable[[], None]]:
        """The remaining steps, in order. Each may be repeated if the disk was full."""
        if not moves:
            return deque([lambda: self._answer(request, epoch)])
        return deque(
            [
                lambda: self._epoch_file.write(self._commit),
                lambda: self._rename(moves),
                lambda: self._epoch_file.rename(epoch),
                lambda: self._files.sync_directory(self._directory),
                *[lambda move=move: self._create(move) for move in moves],
                lambda: self._epoch_file.create(self._commit),
                lambda: self._files.sync_directory(self._directory),
                lambda: self._edit(moves),
                lambda: self._release(moves),
                lambda: self._epoch_file.write(self._commit),
                lambda: self._answer(request, epoch),
            ]
        )

    def _rename(self, moves: list[FileChange]) -> None:
        for move in moves:
            old, new = active_name(move.channel.id), rotated_name(move.channel.id, move.old.number)
            if not self._files.exists(join(self._directory, new)):
                self._files.rename(join(self._directory, old), join(self._directory, new))

    def _create(self, move: FileChange) -> None:
        self._log_files.create(move.new)
        self._epoch_file.add_files([move.new])

    def _edit(self, moves: list[FileChange]) -> None:
        changes: list[Change] = [file_change(move.sealed) for move in moves]
        changes += [file_change(self._log_files.record_of(move.new, move.channel.id)) for move in moves]
        commit = self._commit
        changes.append(
            set_change(next_file=self._log_files.next_number, durable=commit.durable, digest=commit.digest.hex())
        )
        self._manifest.commit(changes)

    def _release(self, moves: list[FileChange]) -> None:
        for move in moves:
            self._epoch_file.remove_file(move.old)
            if self._releases_page_cache:
                move.old.forget(0)
            if move.old.handle is not None:
                move.old.handle.close()
        self.rotations += 1

    def _answer(self, request: RotationRequest | None, epoch: Epoch) -> None:
        if request is not None:
            request.result = RotationResult(epoch, rotated_files(self._manifest), True)

    def _await_sessions(self, request: RotationRequest, result: RotationResult) -> RotationResult:
        deadline = self._clock.monotonic_ns() + int(self._reply_seconds_max * 1e9)
        with self._commit.gate:
            while request.sessions & self._writer.open_sessions:
                left = (deadline - self._clock.monotonic_ns()) / 1e9
                if left <= 0:
                    return RotationResult(result.epoch, result.rotated, False)
                self._commit.gate.wait(left)
        return result


def rotated_files(manifest: Manifest) -> tuple[FileRecord, ...]:
    return tuple(r for r in manifest.state.of_state(FileState.SEALED) if r.purpose is FileKind.LOG)


def sealed_record(
    record: FileRecord, end: FileEnd, channel: LogChannel, wall_ns: int, commit: GroupCommit
) -> FileRecord:
    epoch, digest = commit.closed
    return record.changed(
        state=FileState.SEALED,
        name=rotated_name(channel.id, record.number),
        end=end.end,
        running=end.running,
        entries=channel.entries,
        first_epoch=channel.first_epoch,
        last_epoch=channel.last_epoch,
        last_wall_ns=commit.marks.monotone_ns,
        sealed_ns=wall_ns,
        sealed_epoch=epoch,
        sealed_digest=digest.hex(),
        stream_ends=tuple(sorted(channel.stream_ends.items())),
    )


def _run(steps: deque[Callable[[], None]]) -> None:
    while steps:
        steps[0]()
        steps.popleft()
