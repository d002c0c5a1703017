"""Log files: create, find and open them, also beside the process that renames and removes them.

    LogFileFactory   numbers, incarnations, headers and containers of new files
    locate           open under each name the file can have ──▶ compare number and incarnation in its first block
                     nothing identified ──▶ read the manifest: purged ⇒ `Gone`; else retry, a bounded number of times
    NumberedFiles    the same by file number, for the owner of the manifest
    RecyclePool      freed files that become new ones (CL-07)

A rotation renames `pwal_0000` to `pwal_0000.<number>` and creates the next file under the old name; a purge removes a
file, or hands it to the recycle pool, where it gets another incarnation. So a path may name nothing, or another file, a
moment later. Every reader therefore opens first and identifies what it has opened: an open file keeps its bytes
whatever happens to its name. A file moves from its active name to its rotated one, once, and the names are tried in
that order: an existing file is found in the first pass. Epoch files are renamed and removed in the same way:
`read_epoch_files` lists them again when that happens.

A file without a readable header is opened by its name alone (`is_identified` is False): scans judge such bytes, all
other readers use `open_record`, which refuses them.

Recycling, off by default:

    offer   log/000017.log  → rename →  recycle/000003     if it is free and has no other name
    take    recycle/000003  → rename →  log/000042.log     its old bytes stay in it

Writing over allocated blocks is cheaper than growing a file: no zeros to write, no size to sync. The new file is full
of blocks of its earlier incarnation; every block names its incarnation, so nothing is zeroed.

Invariant: a recycled file has one name. A file with a second name (a backup's link), or one that the caller's predicate
does not call free (pinned, retained, ever handed out to a reader), is not accepted. The count of names is checked again
by `take`, since a link may have been made meanwhile.

After a power cut: a rename between two directories may leave both names or neither. Neither costs a free file. Both
means that the pool's name leads to a file in use: its link count is 2, so it is dropped from the pool on opening, and
by `take`. The old name may also come back and lead to the bytes of the new incarnation; therefore a file is offered
only when the manifest, durably, no longer names it. Then no sync is needed here: `offer` and `take` sync nothing, and
the caller syncs the directory of the new file as it would after `create`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from warren.base.environment import Clock, Random
from warren.base.errors import Damage, Gone, NotFound, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.base.threads import Threads
from warren.durability.epoch_file import FILE_BYTES, witness_in
from warren.durability.log_file import LogFile, run_on
from warren.files.protocol import File, Files, join
from warren.log.file_record import (
    EPOCH,
    FILE_HEADER_BYTES,
    FileHeader,
    FileKind,
    FileRecord,
    FileState,
    active_name,
    epoch_of_name,
    read_file_header,
    rotated_name,
)
from warren.log.manifest import Manifest, read_manifest
from warren.records.block import FileIdentity


class RecyclePool:
    """Free files waiting in a directory of their own. Belongs to the holder of the directory lock."""

    def __init__(self, files: Files, directory: str, is_free: Callable[[str], bool], count_max: int = 4) -> None:
        """`is_free(path)`: the file is not needed, retained or pinned and was never handed out."""
        self._files = files
        self._directory = directory
        self._is_free = is_free
        self._count_max = count_max
        files.make_directories(directory)
        self._names = deque(files.list(directory))
        self._next_number = max((int(name) for name in self._names if name.isdecimal()), default=0) + 1
        for _ in range(len(self._names)):
            name = self._names.popleft()
            if self._is_sole_name(name):
                self._names.append(name)

    def __len__(self) -> int:
        return len(self._names)

    def offer(self, path: str) -> bool:
        """Move the file into the pool; False: it is not accepted, and the caller removes it."""
        if len(self._names) >= self._count_max or not self._is_free(path):
            return False
        found = self._files.stat(path)
        if found.links != 1 or found.is_directory:
            return False
        name = f"{self._next_number:06d}"
        self._next_number += 1
        self._files.rename(path, join(self._directory, name))
        self._names.append(name)
        return True

    def take(self, new_path: str) -> File | None:
        """A file under `new_path` with stale bytes in it, open for writing; None if the pool is empty."""
        if self._files.exists(new_path):
            raise Refused(f"cannot recycle a file as {new_path}: the name is taken")
        while self._names:
            name = self._names.popleft()
            if self._is_sole_name(name):
                self._files.rename(join(self._directory, name), new_path)
                return self._files.open(new_path, writable=True)
        return None

    def _is_sole_name(self, name: str) -> bool:
        """Drop the pool's name of a file that has another one: it is in use."""
        path = join(self._directory, name)
        if self._files.stat(path).links == 1:
            return True
        self._files.remove(path)
        return False


class LogFileFactory:
    """The only source of file numbers, so that none is used twice."""

    def __init__(
        self,
        files: Files,
        directory: str,
        clock: Clock,
        rng: Random,
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
        self._rng = rng
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
        return FileIdentity(self.timeline, Incarnation(self._rng.id64()))

    def plan_log_file(self, channel: ChannelId) -> LogFile:
        """A file that can be appended to in memory; `create` creates it on the disk."""
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
        except BaseException:  # a writer that waits for room retries and opens it again
            file.close()
            raise
        self._headers.pop(participant.number)

    def record_of(self, participant: LogFile, channel: ChannelId) -> FileRecord:
        """The manifest record of a new log file."""
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


TRIES = 3


class OpenLogFile(NamedTuple):
    """An open file of the log; the caller closes it."""

    file: File
    path: str
    is_identified: bool  # its first block has the number and the incarnation of the record

    def map(self) -> tuple[memoryview, str]:
        """A view of the whole file, which stays valid when the file is closed; and where it was opened."""
        try:
            return self.file.view(), self.path
        finally:
            self.file.close()


def locate(files: Files, directory: str, record: FileRecord) -> OpenLogFile | None:
    """Open a file of the manifest under the name it has now. None: it is missing. `Gone`: a purge has removed it."""
    for left in reversed(range(TRIES)):
        found = _open_under_any_name(files, directory, record)
        if found is not None and found.is_identified:
            return found
        horizon = horizon_if_gone(files, directory, record)
        if found is not None and (left or horizon is not None):
            found.file.close()
        if horizon is not None:
            hint = f"begin at epoch {horizon + 1} or later"
            raise Gone(f"log file {record.number} is gone, horizon is {horizon}", hint)
    return found


def open_by_name(files: Files, directory: str, record: FileRecord) -> OpenLogFile:
    """The same for a caller that judges the bytes: without a readable header, the file that has the name."""
    found = locate(files, directory, record)
    if found is None:
        raise Damage(f"log file {record.number} ({record.name}) is missing", join(directory, record.name), 0)
    return found


def open_record(files: Files, directory: str, record: FileRecord) -> OpenLogFile:
    """The same for a caller that relies on it: the file that the record describes, or `Damage`."""
    found = open_by_name(files, directory, record)
    if not found.is_identified:
        found.file.close()
        raise Damage(f"log file {record.number} does not begin with its file header", found.path, 0)
    return found


def find_file(files: Files, directory: str, record: FileRecord) -> str:
    """The path of a file while nothing renames it: for the holder of the directory lock."""
    found = open_record(files, directory, record)
    found.file.close()
    return found.path


def horizon_if_gone(files: Files, directory: str, record: FileRecord) -> Epoch | None:
    """The horizon, if the manifest no longer names the file or has marked it for removal; else None."""
    try:
        now = read_manifest(files, directory)
    except NotFound:
        return None
    known = now.files.get(record.number)
    return now.horizon if known is None or known.state is FileState.DOOMED else None


def read_epoch_files(files: Files, directory: str) -> list[tuple[str, bytes]]:
    """Path and bytes of every epoch file. The listing is repeated when a file was renamed or removed behind it, or when
    the active one has no witness yet: the one it replaces may have got its name after the listing."""
    found: list[tuple[str, bytes]] = []
    names: list[str] = []
    for _ in range(TRIES):
        before, names = names, [n for n in files.list(directory) if n == EPOCH or epoch_of_name(n) is not None]
        if before and before == names:
            break
        found, is_settled = [], False
        for name in names:
            path = join(directory, name)
            try:
                file = files.open(path)
            except NotFound:
                is_settled = False
                continue
            try:
                raw = file.read_at(0, FILE_BYTES)
            finally:
                file.close()
            found.append((path, raw))
            is_settled = is_settled if name != EPOCH else witness_in(raw, path)[0] is not None
        if is_settled and len(found) == len(names):
            break
    return found


def _open_under_any_name(files: Files, directory: str, record: FileRecord) -> OpenLogFile | None:
    by_name: OpenLogFile | None = None
    for name in _names(record):
        path = join(directory, name)
        try:
            file = files.open(path)
        except NotFound:
            continue
        try:
            is_identified = _is_identified(file, path, record)
        except BaseException:
            file.close()
            raise
        if is_identified:
            if by_name is not None:
                by_name.file.close()
            return OpenLogFile(file, path, True)
        if is_identified is None and by_name is None and _may_be_called(record, name):
            by_name = OpenLogFile(file, path, False)
        else:
            file.close()
    return by_name


def _names(record: FileRecord) -> list[str]:
    """The names a file can have. One that is being written gets its rotated name next; one that is sealed keeps it, but
    while the holder of the lock seals it, it still has the active one."""
    if record.purpose is not FileKind.LOG:
        return [record.name]
    active, rotated = active_name(record.channel), rotated_name(record.channel, record.number)
    return [active, rotated] if record.state is FileState.ACTIVE else [record.name, active]


def _may_be_called(record: FileRecord, name: str) -> bool:
    """The active name belongs to another file once this one is sealed."""
    return name == record.name or name == rotated_name(record.channel, record.number)


def _is_identified(file: File, path: str, record: FileRecord) -> bool | None:
    """False: it is another file. None: the header is unreadable, or names another incarnation of the number."""
    try:
        header, identity = read_file_header(memoryview(file.read_at(0, FILE_HEADER_BYTES)), path)
    except Damage:
        return None
    if header.number != record.number:
        return False
    return True if identity == record.identity else None


class NumberedFiles:
    def __init__(self, files: Files, directory: str, manifest: Manifest) -> None:
        self._files = files
        self._directory = directory
        self._manifest = manifest

    def open(self, number: FileNumber) -> tuple[File, FileIdentity]:
        """A file, and the incarnation that its blocks must name."""
        record = self.record(number)
        try:
            return open_record(self._files, self._directory, record).file, record.identity
        except (Damage, Gone):
            self.record(number)  # purged meanwhile
            raise

    def record(self, number: FileNumber) -> FileRecord:
        record = self._manifest.state.files.get(number)
        if record is None or record.state is FileState.DOOMED:
            raise Gone(
                f"log file {number} is gone: what was in it has moved, or is no longer needed", "read the index again"
            )
        return record

    def path(self, number: FileNumber) -> str:
        """For messages."""
        record = self._manifest.state.files.get(number)
        return join(self._directory, record.name if record is not None else f"file {number}")
