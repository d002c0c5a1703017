"""Log store: opens a log directory, connects the parts and closes it.

    with LogStore.open("/var/lib/app/log") as store, store.begin() as session:
        session.put(1, b"key", b"value")

Only wiring: each part gets what it uses in its constructor, and the work is done in the parts.
"""

from __future__ import annotations

from typing import Any

from warren.base.environment import Clock, OwningProcess
from warren.base.errors import Refused
from warren.base.ids import ChannelId, Epoch
from warren.base.threads import Threads
from warren.files.environment import Environment
from warren.files.local import this_process
from warren.files.protocol import DirectoryLock, Files, join
from warren.log.checkpoint import Checkpoint, make_cut
from warren.log.compaction.compaction import Compaction, check_has_state
from warren.log.compaction.control import CompactionThread
from warren.log.compaction.handover import CompactionJobs
from warren.log.compaction.jobs import InlineWorker, MergeWorker, ProcessWorker, SizedWorker
from warren.log.compaction.startup_snapshot import StartupSnapshot, StartupSnapshots
from warren.log.disk_reserve import DiskReserve, release_if_full
from warren.log.file_record import LOCK, RECYCLE
from warren.log.log_files import LogFileFactory, RecyclePool
from warren.log.manifest import Manifest, StreamRecord, file_change, set_change, stream_change
from warren.log.recovery import (
    OpenedLog,
    check_settings,
    create_if_missing,
    opening_edit,
    quarantine_alarm,
    recover,
    release,
)
from warren.log.retention import FilePurge, Pins, PurgeResult
from warren.log.rotation import RotationResult
from warren.log.settings import LogSettings
from warren.log.streams import Stream, Streams
from warren.log.writer import CommitStart, EpochFileWriter, LogChannel, LogWriter
from warren.workers.tasks import Progress

__all__ = ["Environment", "LogStore"]


class LogStore:
    """An open log directory. Use `LogStore.open`."""

    def __init__(
        self, directory: str, settings: LogSettings, environment: Environment, lock: DirectoryLock, opened: OpenedLog
    ) -> None:
        self.directory = directory
        self.owner = OwningProcess(directory)
        self.settings = settings
        self.environment = environment
        self.opened = opened
        self._lock = lock
        self._is_open = True
        self._compaction_thread: CompactionThread | None = None
        self._snapshot: StartupSnapshot | None = None
        self.manifest: Manifest = opened.manifest
        self.recycle_pool = self._recycle_pool()
        self._wire_writing()
        self._wire_upkeep()

    def _wire_writing(self) -> None:
        """From a session's end to the disk: channels, commit, rotation."""
        files, directory, clock, threads = self._seams()
        settings, opened, state = self.settings, self.opened, self.manifest.state
        self.log_files = LogFileFactory(
            files,
            directory,
            clock,
            self.environment.rng,
            threads,
            state.timeline.id,
            state.next_file,
            state.container_bytes,
            state.initial_containers,
            self.recycle_pool,
        )
        self.epoch_file = EpochFileWriter(files, directory, threads, self.manifest, opened.witness_sequence)
        self.channels = [self._channel(ChannelId(index)) for index in range(self._channel_count())]
        self.disk_reserve = DiskReserve(
            files, directory, threads, settings.ballast_bytes, settings.ballast_publish_bytes
        )
        judgement = opened.judgement
        start = CommitStart(judgement.durable, judgement.digest, opened.first_epoch, judgement.monotone_ns)
        self.writer = LogWriter(
            files,
            directory,
            clock,
            threads,
            self.manifest,
            self.log_files,
            self.channels,
            self.epoch_file,
            self.disk_reserve,
            settings,
            self.owner,
            start,
        )
        self.begin, self.wait = self.writer.begin, self.writer.wait
        self.commit, self.rotation = self.writer.commit, self.writer.rotation

    def _wire_upkeep(self) -> None:
        """What keeps the log short and readable: pins, purge, compaction, snapshot, streams."""
        files, directory, clock, threads = self._seams()
        settings = self.settings
        self.pins = Pins(files, directory, clock, self.environment.rng)
        upkeep = threads.condition()
        self.purger = FilePurge(
            files, directory, clock, upkeep, self.manifest, self.pins, settings, self.recycle_pool, self._missing_bytes
        )
        self._worker = self._make_worker()
        self.compaction = Compaction(
            files,
            directory,
            clock,
            upkeep,
            self.manifest,
            self.log_files,
            self.rotation,
            self._worker,
            settings,
        )
        self.handover = CompactionJobs(files, directory, clock, self.environment.rng, upkeep, self.compaction)
        self._snapshots = StartupSnapshots(
            files, directory, clock, upkeep, self.manifest, self.log_files, self._worker, settings
        )
        self.streams = Streams(
            files,
            directory,
            self.manifest,
            self.channels,
            self.begin,
            self._add_channel,
            lambda: self.commit.durable,
            threads.condition(),
        )

    def _ready(self, progress: Progress, was_released: bool) -> None:
        """Start the first epoch and make the start-up snapshot."""
        if self.settings.keeps_snapshot:
            check_has_state(self.manifest.state)
        self._start_run()
        self.disk_reserve.begin(was_released)
        if self.settings.keeps_snapshot:
            self._snapshot = self._snapshots.at_start(self.commit.durable, self._inline_worker(), progress)

    def begin_upkeep(self) -> None:
        """Start the thread that compacts and purges: from now on files may be removed."""
        self._compaction_thread = CompactionThread(
            self.environment.files,
            self.directory,
            self.environment.clock,
            self.environment.threads,
            self,
            self.settings.compaction_poll_seconds,
            self.environment.background,
        )

    @classmethod
    def open(
        cls,
        directory: str,
        settings: LogSettings | None = None,
        environment: Environment | None = None,
        progress: Progress = lambda share: None,
        begins_upkeep: bool = True,
    ) -> LogStore:
        """Open a log directory, or create one. Returns when it can be written to and read from. Without `begins_upkeep`
        nothing is removed from it until the caller calls `begin_upkeep`."""
        settings, environment = settings or LogSettings(), environment or Environment.real()
        check_settings(settings)
        files = environment.files
        files.make_directories(directory)
        lock = files.lock(join(directory, LOCK), f"warren log store, {this_process(environment.clock)}")
        try:
            was_released = release_if_full(files, directory, settings.ballast_bytes)
            create_if_missing(files, directory, settings, environment.threads, environment.rng)
            opened = recover(files, directory, environment.threads, environment.rng, environment.clock)
            with opened.release_on_error():
                store = cls(directory, settings, environment, lock, opened)
        except BaseException:
            lock.release()
            raise
        try:
            store._ready(progress, was_released)
            if begins_upkeep:
                store.begin_upkeep()
        except BaseException:
            store.abandon()
            raise
        return store

    # -- writing -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Request a commit of what is gathered, without waiting."""
        self.owner.check()
        self.commit.request_commit()

    def witness(self) -> None:
        """Publish the durable epoch to other processes now; otherwise that happens within 100 ms."""
        self.owner.check()
        self.epoch_file.write(self.commit)

    def rotate(self) -> RotationResult:
        self.owner.check()
        return self.rotation.rotate()

    @property
    def durable(self) -> Epoch:
        return self.commit.durable

    def stream(self, name: str, channel: int | None = None, is_referring: bool = False) -> Stream:
        """A named sequence of records, on a channel of its own unless it shares one."""
        self.owner.check()
        return self.streams.open(name, channel, is_referring)

    # -- reading -------------------------------------------------------------------------------------------------

    def snapshot(self) -> StartupSnapshot:
        """The state as of opening, or as of the last `refresh`."""
        if self._snapshot is None:
            raise Refused("this store keeps no start-up snapshot", "its state is in the safe snapshot store")
        return self._snapshot

    def refresh(self) -> StartupSnapshot:
        """A snapshot of what is durable now."""
        self.owner.check()
        check_has_state(self.manifest.state)
        result = self.rotation.rotate()
        self._snapshot = self._snapshots.make(result.epoch)
        return self._snapshot

    def cut(self, epoch: Epoch | None = None) -> Checkpoint:
        """The store at an epoch (now, if none is named) as a set of immutable files, pinned."""
        self.owner.check()
        sealed_to = max((r.sealed_epoch for r in self.manifest.state.files.values()), default=Epoch(0))
        if epoch is None or epoch > sealed_to:
            rotated = self.rotation.rotate()
            epoch = rotated.epoch if epoch is None else epoch
        if epoch > self.durable:
            raise Refused(f"epoch {epoch} is not durable", f"the newest is {self.durable}")
        files, pins = self.environment.files, self.pins
        return make_cut(files, self.directory, self.manifest, pins, epoch, self.settings.pin_seconds)

    # -- upkeep --------------------------------------------------------------------------------------------------

    def alarms(self) -> list[str]:
        """For the operator: problems found on opening, what writers wait for, failures of upkeep."""
        files, directory, _, _ = self._seams()
        full = self.commit.out_of_room
        waits = [f"writers wait for room: {full.what}; {full.hint}"] if full is not None else []
        ended = self.commit.failure
        failures = [f"nothing is written any more: {ended.what}; {ended.hint}"] if ended is not None else []
        failures += self._compaction_thread.alarms() if self._compaction_thread is not None else []
        over = quarantine_alarm(files, directory, self.settings.quarantine_bytes_max)
        active = [*waits, *failures, *([over] if over else []), *self.purger.shortage]
        return [*self.opened.problems, *active]

    def compact(self, progress: Progress = lambda share: None) -> dict[str, Any]:
        self.owner.check()
        return self.compaction.run(progress)

    def is_compaction_due(self) -> bool:
        return self.compaction.is_due()

    def purge(self) -> PurgeResult:
        self.owner.check()
        return self.purger.run()

    def purge_soon(self) -> None:
        """Have the upkeep thread purge. Waits for nothing."""
        if self._compaction_thread is not None:
            self._compaction_thread.ring()

    def is_short_of_room(self) -> bool:
        least = self.settings.free_bytes_min
        return bool(self._missing_bytes()) or (least > 0 and self.environment.files.free_bytes(self.directory) < least)

    def _missing_bytes(self) -> int:
        """Free space that writers wait for: for the next container, and for the disk reserve if that is in use."""
        if not self.commit.is_out_of_room and not self.disk_reserve.is_in_use:
            return 0
        return self.disk_reserve.room_bytes + self.manifest.state.container_bytes

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit what is gathered, keep a snapshot for the next start, write the epoch file, release the directory. In
        a forked child nothing happens."""
        if not self._is_open or not self.owner.is_this:
            return
        self._is_open = False
        try:
            self._end_compaction()
            keeps = self.settings.keeps_snapshot and self.settings.snapshot_at_stop
            if keeps and self.manifest.state.snapshot_epoch < self._newest_epoch():
                self.refresh()
            self.commit.stop()
            marks = self.commit.marks.monotone_ns
            self.manifest.commit(
                [
                    set_change(
                        is_clean=True, durable=self.commit.durable, digest=self.commit.digest.hex(), monotone_ns=marks
                    )
                ]
            )
        finally:
            self._release()

    def abandon(self) -> None:
        """Release everything as it is, as if the process had ended here."""
        if not self.owner.is_this:
            return
        self._is_open = False
        self._end_compaction()
        self.commit.abandon()
        self._release()

    def __enter__(self) -> LogStore:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _end_compaction(self) -> None:
        if self._compaction_thread is not None:
            self._compaction_thread.stop(self._worker.stop)

    def _seams(self) -> tuple[Files, str, Clock, Threads]:
        return self.environment.files, self.directory, self.environment.clock, self.environment.threads

    def _newest_epoch(self) -> Epoch:
        """The newest epoch that is durable or about to be."""
        with self.commit.gate:
            has_gathered = any(channel.has_gathered() for channel in self.channels)
            return self.commit.open_epoch if has_gathered else self.commit.durable

    def _make_worker(self) -> MergeWorker:
        inline = self._inline_worker()
        return SizedWorker(inline, ProcessWorker()) if self.settings.use_worker_process else inline

    def _inline_worker(self) -> InlineWorker:
        return InlineWorker(self.environment.files, self.environment.threads)

    def _add_channel(self, stream: StreamRecord) -> None:
        """A channel of its own for a new stream: file, witness, edit, and only then the first byte."""
        participant = self.log_files.plan_log_file(stream.channel)
        self.log_files.create(participant)
        self.epoch_file.add_files([participant])
        self.environment.files.sync_directory(self.directory)
        record = self.log_files.record_of(participant, stream.channel)
        next_file = set_change(next_file=self.log_files.next_number)
        self.manifest.commit([file_change(record), stream_change(stream), next_file])
        with self.commit.gate:
            self.channels.append(LogChannel(stream.channel, participant))

    def _recycle_pool(self) -> RecyclePool | None:
        """Only files that a durable edit has dropped, and that were never handed out, are offered to it."""
        if not self.settings.recycle_files:
            return None
        return RecyclePool(self.environment.files, join(self.directory, RECYCLE), lambda path: True)

    def _channel_count(self) -> int:
        """As many as the settings say, but never fewer than the streams of the store need."""
        needed = max((stream.channel + 1 for stream in self.manifest.state.streams.values()), default=1)
        return max(self.settings.channel_count, needed)

    def _channel(self, channel: ChannelId) -> LogChannel:
        reused = self.opened.reused.get(channel)
        return LogChannel(channel, reused or self.log_files.plan_log_file(channel))

    def _start_run(self) -> None:
        """Create the new files and the epoch file and commit the edit: from now on there may be epochs."""
        files = self.environment.files
        fresh = [channel for channel in self.channels if channel.participant.handle is None]
        for channel in fresh:
            self.log_files.create(channel.participant)
        self.epoch_file.add_files([channel.participant for channel in self.channels])
        self.epoch_file.create(self.commit)
        files.sync_directory(self.directory)
        records = [self.log_files.record_of(channel.participant, channel.id) for channel in fresh]
        self.manifest.commit(opening_edit(self.opened, records, self.log_files.next_number))
        self.epoch_file.write(self.commit)

    def _release(self) -> None:
        for channel in self.channels:
            release(channel.participant)
        self.epoch_file.close()
        self.manifest.close()
        self._lock.release()
