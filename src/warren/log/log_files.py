"""Making log files: numbers, lives, headers, containers."""

from __future__ import annotations

from warren.base.chance import Random
from warren.base.clock import Clock
from warren.base.ids import ChannelId, FileNumber, Incarnation, TimelineId
from warren.base.threads import Threads
from warren.durability.participant import LogFile, run_on
from warren.files.protocol import File, Files, join
from warren.files.recycle import RecyclePool
from warren.log.file_header import FILE_HEADER_BYTES, FileHeader, FileKind
from warren.log.file_record import FileRecord, FileState
from warren.log.layout import active_name
from warren.records.block import FileIdentity


class LogFileFactory:
    """Numbers come from here and nowhere else, so that none is given twice."""

    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        chance: Random,
        threads: Threads,
        timeline: TimelineId,
        next_number: FileNumber,
        container_bytes: int,
        initial_containers: int,
        pool: RecyclePool | None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._chance = chance
        self._lock = threads.condition()
        self._next = next_number
        self._initial_containers = initial_containers
        self._pool = pool
        self._headers: dict[FileNumber, tuple[ChannelId, bytes]] = {}
        self._recycled: set[FileNumber] = set()
        self.timeline = timeline
        self.container_bytes = container_bytes

    @property
    def next_number(self) -> FileNumber:
        return self._next

    def take_number(self) -> FileNumber:
        with self._lock:
            number = self._next
            self._next = FileNumber(number + 1)
            return number

    def new_identity(self) -> FileIdentity:
        return FileIdentity(self.timeline, Incarnation(self._chance.id64()))

    def plan_log_file(self, channel: ChannelId) -> LogFile:
        """A file that can be appended to in memory; `create` brings it to the disk."""
        number, identity = self.take_number(), self.new_identity()
        header = FileHeader(number, channel, FileKind.LOG, self.container_bytes, self._clock.wall_ns())
        raw, checksum = header.placed(identity)
        self._headers[number] = (channel, raw)
        return LogFile(number, identity, FILE_HEADER_BYTES, run_on(0, checksum), self.container_bytes)

    def create(self, participant: LogFile) -> None:
        """The planned file under its channel's active name, allocated and synced; its name is the caller's to sync. May
        be repeated after `OutOfRoom`."""
        channel, raw = self._headers[participant.number]
        file = self._open_or_create(participant.number, join(self._directory, active_name(channel)))
        size = self._initial_containers * self.container_bytes
        try:
            if file.size() < size:
                file.allocate(file.size(), size - file.size())
            file.write_at(0, [raw])
            file.sync()
            participant.attach(file, file.size())
        except BaseException:  # whoever waits for room tries again, and opens it again
            file.close()
            raise
        self._headers.pop(participant.number)

    def record_of(self, participant: LogFile, channel: ChannelId) -> FileRecord:
        """What the manifest shall know of a new log file."""
        return FileRecord(
            participant.number,
            channel,
            participant.identity.timeline,
            participant.identity.incarnation,
            FileKind.LOG,
            FileState.ACTIVE,
            active_name(channel),
            first_wall_ns=self._clock.wall_ns(),
            is_recycled=participant.number in self._recycled,
        )

    def _open_or_create(self, number: FileNumber, path: str) -> File:
        if self._files.exists(path):
            return self._files.open(path, writable=True)
        recycled = self._pool.take(path) if self._pool is not None else None
        if recycled is None:
            return self._files.create(path)
        self._recycled.add(number)
        return recycled
