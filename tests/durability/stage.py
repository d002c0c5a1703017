"""A small log for the tests of this package: participants on a memory disk, and a turn that keeps a diary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from warren.base.environment import Clock
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.base.threads import SystemThreads, Threads
from warren.durability.closing_block import NO_DIGEST, WallMarks
from warren.durability.group_commit import GroupCommit
from warren.durability.log_file import LogFile
from warren.files.protocol import Buffer, File, Files
from warren.log.read.blocks import walk
from warren.records.block import FileIdentity, Header, draft
from warren.records.format import BlockKind
from warren.testing.fakes import ManualClock
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import MemoryFiles

TIMELINE = TimelineId(0xAA)
CONTAINER_BYTES = 4096


def participant_on(files: Files, number: int, container_bytes: int = CONTAINER_BYTES) -> LogFile:
    """An empty file of its own, attached."""
    identity = FileIdentity(TIMELINE, Incarnation(0xBB00 + number))
    log_file = LogFile(FileNumber(number), identity, 0, 0, container_bytes)
    log_file.attach(files.create(path_of(number)), 0)
    return log_file


def path_of(number: int) -> str:
    return f"/log{number}"


def headers_in(raw: bytes, participant: LogFile) -> list[Header]:
    return walk(memoryview(raw), participant.identity).headers


@dataclass
class Diary:
    """`CommitHooks` that record their calls; every file with pending blocks takes part."""

    participants: list[LogFile]
    events: list[str] = field(default_factory=list)
    after: list[Callable[[], None] | None] = field(default_factory=list)
    room: list[Callable[[], bool]] = field(default_factory=list)
    commit: GroupCommit | None = None

    def gather(self) -> list[LogFile]:
        return [participant for participant in self.participants if participant.blocks_pending]

    def at_switch(self) -> Callable[[], None] | None:
        return self.after.pop(0) if self.after else None

    def release_reserve(self) -> bool:
        return self.room.pop(0)() if self.room else False

    def witness(self) -> None:
        assert self.commit is not None
        self.events.append(f"witness {self.commit.durable}")


class Stage:
    """A group commit over `count` files."""

    def __init__(
        self,
        count: int = 1,
        files: FaultyFiles | None = None,
        threads: Threads | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.disk = files or FaultyFiles(MemoryFiles())
        self.participants = [participant_on(self.disk, number) for number in range(1, count + 1)]
        self.diary = Diary(self.participants)
        clock = clock or ManualClock()
        self.commit = GroupCommit(
            threads or SystemThreads(),
            clock,
            self.diary,
            TIMELINE,
            Epoch(0),
            Epoch(1),
            NO_DIGEST,
            WallMarks(clock),
        )
        self.diary.commit = self.commit

    def append(self, body: bytes = b"entry", index: int = 0) -> Epoch:
        """One block into the epoch being gathered."""
        with self.commit.gate:
            self.commit.check()
            epoch = self.commit.open_epoch
            self.participants[index].append(draft(BlockKind.EDIT, [body]), epoch)
            return epoch

    def kinds_of(self, index: int = 0) -> list[tuple[int, int]]:
        """(epoch, kind) of each block that reached the file."""
        participant = self.participants[index]
        file = self.disk.open(path_of(participant.number))
        raw = file.read_at(0, file.size())
        file.close()
        return [(header.epoch, header.kind) for header in headers_in(raw, participant)]

    def steps_of(self, *operations: str) -> list[str]:
        return [str(step) for step in self.disk.steps if step.operation in operations]


class HookedFile:
    """A `File` with a callback before each sync."""

    def __init__(self, inner: File, before_sync: Callable[[], None]) -> None:
        self._inner = inner
        self._before_sync = before_sync

    @property
    def path(self) -> str:
        return self._inner.path

    def write_at(self, offset: int, pieces: Sequence[Buffer]) -> None:
        self._inner.write_at(offset, pieces)

    def write_through(self, offset: int, pieces: Sequence[Buffer]) -> None:
        self._before_sync()
        self._inner.write_through(offset, pieces)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._inner.read_at(offset, size)

    def allocate(self, offset: int, size: int) -> None:
        self._inner.allocate(offset, size)

    def expect(self, offset: int, size: int) -> None:
        self._inner.expect(offset, size)

    def forget(self, offset: int, size: int) -> None:
        self._inner.forget(offset, size)

    def size(self) -> int:
        return self._inner.size()

    def sync(self) -> None:
        self._before_sync()
        self._inner.sync()

    def view(self) -> memoryview:
        return self._inner.view()

    def close(self) -> None:
        self._inner.close()


def hook(participant: LogFile, before_sync: Callable[[], None]) -> None:
    assert participant.handle is not None
    participant.handle = HookedFile(participant.handle, before_sync)
