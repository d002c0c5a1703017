"""The log store: wiring only. Every part is told what it uses; what happens is in the parts.

with LogStore.open("/var/lib/app/log") as store:
    with store.begin() as session:
        session.put(1, b"key", b"value")
    store.snapshot().get(1, b"key")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warren.base.chance import Chance, SystemChance
from warren.base.clock import Clock, SystemClock
from warren.base.errors import Refused
from warren.base.ids import ChannelId, Epoch, StreamId
from warren.base.threads import SystemThreads, Threads
from warren.durability.group_commit import GroupCommit
from warren.durability.participant import Participant
from warren.durability.wall_times import WallMarks
from warren.files.local import LocalFiles
from warren.files.protocol import DirectoryLock, Files, join
from warren.files.recycle import RecyclePool
from warren.log.appender import Appender
from warren.log.channel import Channel
from warren.log.layout import LOCK, RECYCLE
from warren.log.log_files import LogFiles
from warren.log.manifest import Manifest
from warren.log.manifest_state import set_change
from warren.log.opening import KV_STREAM, Opened, check_channel_count, create_if_missing, opening_edit, recover
from warren.log.rotation import Rotation, RotationResult
from warren.log.session import Session
from warren.log.settings import LogSettings
from warren.log.turn import LogTurn, Witnesses


@dataclass(frozen=True, slots=True)
class Machine:
    """The seams the store stands on."""

    files: Files
    clock: Clock
    threads: Threads
    chance: Chance

    @classmethod
    def real(cls) -> Machine:
        return cls(LocalFiles(), SystemClock(), SystemThreads(), SystemChance())


class LogStore:
    """An open log directory. Use `LogStore.open`."""

    def __init__(
        self, directory: str, settings: LogSettings, machine: Machine, lock: DirectoryLock, opened: Opened
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.machine = machine
        self.opened = opened
        self._lock = lock
        self._is_open = True
        files, threads = machine.files, machine.threads
        self.manifest: Manifest = opened.manifest
        state = self.manifest.state
        self.recycle_pool = self._recycle_pool()
        self.log_files = LogFiles(
            files,
            directory,
            machine.clock,
            machine.chance,
            threads,
            state.timeline.id,
            state.next_file,
            state.container_bytes,
            state.initial_containers,
            self.recycle_pool,
        )
        self.witnesses = Witnesses(files, directory, threads, self.manifest, opened.witness_sequence)
        self.channels = [self._channel(ChannelId(index)) for index in range(self._channel_count())]
        turn = LogTurn(self.channels, self.witnesses)
        judgement = opened.judgement
        self.commit = GroupCommit(
            threads,
            machine.clock,
            turn,
            state.timeline.id,
            judgement.durable,
            opened.first_epoch,
            judgement.digest,
            WallMarks(machine.clock, judgement.monotone_ns),
        )
        turn.commit = self.commit
        self.appender = Appender(self.channels, self.commit, settings.max_write_buffers)
        self.rotation = Rotation(
            files,
            directory,
            machine.clock,
            self.manifest,
            self.log_files,
            self.channels,
            self.appender,
            self.commit,
            self.witnesses,
            settings.rotate_bytes,
            settings.rotation_reply_seconds_max,
        )
        turn.rotate_if_due = self.rotation.at_switch
        self._start_run()

    @classmethod
    def open(cls, directory: str, settings: LogSettings | None = None, machine: Machine | None = None) -> LogStore:
        """Open a log directory, or make one. Returns when it can be written to and read from."""
        settings, machine = settings or LogSettings(), machine or Machine.real()
        check_channel_count(settings.channel_count)
        files = machine.files
        files.make_directories(directory)
        lock = files.lock(join(directory, LOCK), "warren log store")
        try:
            create_if_missing(files, directory, settings, machine.threads, machine.chance)
            opened = recover(files, directory, machine.threads, machine.chance, machine.clock)
            return cls(directory, settings, machine, lock, opened)
        except BaseException:
            lock.release()
            raise

    # -- writing -------------------------------------------------------------------------------------------------

    def begin(self, channel: int = 0, stream: StreamId = KV_STREAM) -> Session:
        """Begin a session on a channel."""
        if not 0 <= channel < len(self.channels):
            raise Refused(f"there is no channel {channel}", f"this store has channels 0 … {len(self.channels) - 1}")
        return Session(self.appender, channel, stream, self.settings.block_bytes, self.settings.session_bytes_max)

    def wait(self, epoch: Epoch) -> None:
        """Return when an epoch is durable."""
        self.commit.wait(epoch)

    def call_when_durable(self, callback: Callable[[Epoch], None]) -> None:
        """Be called with each epoch that becomes durable, in order."""
        self.commit.call_when_durable(callback)

    def flush(self) -> None:
        """Ask for what is gathered to become durable, without waiting."""
        self.commit.ring()

    def rotate(self) -> RotationResult:
        return self.rotation.rotate()

    @property
    def durable(self) -> Epoch:
        return self.commit.durable

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit what is gathered, witness it, let go of the directory."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self.commit.stop()
            marks = self.commit.marks.monotone_ns
            self.manifest.commit(
                [set_change(durable=self.commit.durable, digest=self.commit.digest.hex(), monotone_ns=marks)]
            )
        finally:
            self._let_go()

    def __enter__(self) -> LogStore:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _recycle_pool(self) -> RecyclePool | None:
        """Only files that a durable edit has dropped, and that were never handed out, are offered to it."""
        if not self.settings.recycle_files:
            return None
        return RecyclePool(self.machine.files, join(self.directory, RECYCLE), lambda path: True)

    def _channel_count(self) -> int:
        """As many as wanted, but never fewer than the streams of the store need."""
        needed = max((stream.channel + 1 for stream in self.manifest.state.streams.values()), default=1)
        return max(self.settings.channel_count, needed)

    def _channel(self, channel: ChannelId) -> Channel:
        kept = self.opened.kept.get(channel)
        return Channel(channel, kept or self.log_files.plan_log_file(channel))

    def _start_run(self) -> None:
        """Bring the new files, the epoch file and the edit to the disk: from now on there may be epochs."""
        files = self.machine.files
        fresh = [channel for channel in self.channels if channel.participant.handle is None]
        for channel in fresh:
            self.log_files.create(channel.participant)
        self.witnesses.speaks_of = [channel.participant for channel in self.channels]
        self.witnesses.create(self.commit)
        files.sync_directory(self.directory)
        records = [self.log_files.record_of(channel.participant, channel.id) for channel in fresh]
        self.manifest.commit(opening_edit(self.opened, records, self.log_files.next_number))
        self.witnesses.write(self.commit)

    def _let_go(self) -> None:
        for channel in self.channels:
            _close(channel.participant)
        self.witnesses.close()
        self.manifest.close()
        self._lock.release()


def _close(participant: Participant) -> None:
    if participant.handle is not None:
        participant.handle.close()
        participant.handle = None
