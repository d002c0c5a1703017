"""Recovery: opens a log directory after any stop: which epoch is durable, where each file ends, what is void.

    lock ─▶ manifest ─▶ witness and closing blocks ⇒ durable epoch ─▶ sync what was found
         ─▶ quarantine a copy of what is voided ─▶ rename ─▶ new files ─▶ one manifest edit: sealed, voided, new numbers

Each step is idempotent and may be the last one before a power cut. What was read from the page cache after a mere
`kill -9` is synced before it is trusted: a power cut later must not take back what opening has called durable. The edit
that seals and voids precedes the first new epoch, so a number is never used twice. Files that the manifest does not
name cannot hold an entry; they are moved to quarantine.

Evidence for the durable epoch, strongest first
1. The epoch file: up to its `durable` everything was synced, and each file reached at least the end it names. What is
   missing or different below that is damage, and the start stops there.
2. The log: a good block of epoch m was not written before everything below m was durable. So every epoch of this run
   below the highest one seen must be whole, or it is damage.
3. The closing blocks: the highest epoch seen is durable if and only if every part its closing block names verifies. If
   not, a power cut interrupted it: it was never confirmed, and it is voided.

`examine` and `judge` are plain functions over views of files and write nothing.

Quarantine: `quarantine/` holds copies of voided bytes and whole unknown files; nothing is deleted. It has its own
budget: above it an alarm is shown, and an operator decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from warren.base.environment import Clock, Random
from warren.base.errors import Damage, NotFound, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Lsn, StreamId, TimelineId, lsn_of
from warren.base.threads import Threads
from warren.durability.closing_block import Closing, read_closing
from warren.durability.epoch_file import DurableRecord, read_witness, witness_in
from warren.durability.log_file import FileEnd, LogFile
from warren.durability.timeline import Timeline
from warren.files.protocol import Buffer, Files, join
from warren.log.compaction.jobs import clear_staging
from warren.log.file_record import (
    DIRECTORIES,
    EPOCH,
    FILE_HEADER_BYTES,
    MANIFEST,
    QUARANTINE,
    STAGING,
    FileKind,
    FileRecord,
    FileState,
    Voided,
    is_wal,
    read_file_header,
    rotated_epoch_name,
    rotated_name,
)
from warren.log.log_files import find_file, open_record, read_epoch_files
from warren.log.manifest import Change, Manifest, ManifestState, StreamRecord, file_change, read_manifest, set_change
from warren.log.read.blocks import BlockWalk, extent, good_blocks, walk
from warren.log.settings import CHANNELS_MAX, KV_STREAM, LogSettings, container_bytes_of
from warren.records.block import Header, require_known_format
from warren.records.format import BlockKind


@dataclass(frozen=True, slots=True)
class ExaminedFile:
    """One active file, walked from its first block to where good blocks end."""

    record: FileRecord
    path: str
    view: memoryview
    walked: BlockWalk
    behind: tuple[Header, ...]  # good blocks of this incarnation behind the end of the walk
    extent: int  # end of what was written in this incarnation


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """The valid part of an active file, and what does not count."""

    examined: ExaminedFile
    end: FileEnd
    headers: tuple[Header, ...]
    voided: Voided | None


@dataclass(frozen=True, slots=True)
class RecoveredEpoch:
    durable: Epoch
    digest: bytes
    highest_seen: Epoch
    files: tuple[VerifiedFile, ...]
    monotone_ns: int


def examine(record: FileRecord, path: str, view: memoryview) -> ExaminedFile:
    walked = walk(view, record.identity)
    if not walked.headers or walked.headers[0].kind != BlockKind.FILE_HEADER:
        raise Damage("an active log file does not begin with its file header", path, 0)
    for header in walked.headers:
        require_known_format(header, path)
    # Behind zeros too: of two sectors the second may have reached the disk and the first not, and its number is used.
    written_to = extent(view, walked.end)
    behind = list(good_blocks(view, record.identity, walked.end + 8)) if written_to > walked.end else []
    # In a recycled file the bytes of its earlier incarnation follow: only good blocks show how far this one reached.
    last = behind[-1].end if behind else walked.end
    return ExaminedFile(record, path, view, walked, tuple(behind), last if record.is_recycled else written_to)


def judge(
    examined: Sequence[ExaminedFile],
    witness: DurableRecord | None,
    floor: Epoch,
    floor_digest: bytes,
    run_first: Epoch,
) -> RecoveredEpoch:
    """`floor` is the epoch the manifest knows to be durable; the witness, if there is one, is at least as good."""
    durable, digest = (
        (witness.durable, witness.digest) if witness and witness.durable >= floor else (floor, floor_digest)
    )
    for item in examined:
        _check_against_witness(item, witness)
        _check_order(item)
    closings = _closings(examined)
    seen = {h.epoch for item in examined for h in (*item.walked.headers, *item.behind) if h.epoch > durable}
    highest = max(seen, default=durable)
    final = durable
    for epoch in range(max(durable + 1, run_first), highest):
        _require_whole(examined, closings, Epoch(epoch))
        final = Epoch(epoch)
    if highest in closings and highest > durable and _is_whole(examined, closings[highest]):
        final = highest
    if final > durable:
        digest = closings[final].digest(examined[0].record.timeline)
    marks = [closing.monotone_ns for closing in closings.values()]
    monotone = max([witness.monotone_ns if witness else 0, *marks])
    return RecoveredEpoch(final, digest, highest, tuple(_verified(item, final) for item in examined), monotone)


def _check_against_witness(item: ExaminedFile, witness: DurableRecord | None) -> None:
    # A witness of an interrupted opening may name another incarnation of this number: not this file.
    ends = witness.ends if witness else ()
    wanted = [end for end in ends if (end.number, end.identity) == (item.record.number, item.record.identity)]
    for end in wanted:
        if item.walked.end < end.end:
            raise Damage(
                f"a durable block is damaged: epoch ≤ {witness.durable if witness else 0} reached byte {end.end}, "
                f"good blocks end at byte {item.walked.end}",
                item.path,
                item.walked.end,
            )
        if _running_at(item, end.end) != end.running:
            raise Damage(
                "the blocks are not those that were synced: their running checksum differs", item.path, end.end
            )


def _check_order(item: ExaminedFile) -> None:
    last = 0
    for header in item.walked.headers:
        if header.epoch < last:
            raise Damage(f"epoch {header.epoch} stands behind epoch {last}", item.path, header.offset)
        last = header.epoch


def _closings(examined: Sequence[ExaminedFile]) -> dict[Epoch, Closing]:
    found: dict[Epoch, Closing] = {}
    for item in examined:
        for header in (*item.walked.headers, *item.behind):
            if header.kind == BlockKind.CLOSING:
                found[header.epoch] = read_closing(header.epoch, item.view[header.body_at : header.end])
    return found


def _is_whole(examined: Sequence[ExaminedFile], closing: Closing) -> bool:
    by_number = {item.record.number: item for item in examined}
    for part in closing.parts:
        item = by_number.get(part.file)
        if item is None or item.record.incarnation != part.incarnation or _running_at(item, part.end) != part.running:
            return False
    return True


def _require_whole(examined: Sequence[ExaminedFile], closings: dict[Epoch, Closing], epoch: Epoch) -> None:
    """A later epoch was written, so this one was durable: whatever is missing of it is damage."""
    if epoch in closings and _is_whole(examined, closings[epoch]):
        return
    worst = min(examined, key=lambda item: item.walked.headers[-1].epoch)
    raise Damage(
        f"epoch {epoch} was durable and is not whole: a later epoch stands in the log", worst.path, worst.walked.end
    )


def _running_at(item: ExaminedFile, end: int) -> int | None:
    """The running checksum behind the good block that ends there."""
    if end > item.walked.end:
        return None
    for header, running in zip(item.walked.headers, item.walked.runnings, strict=True):
        if header.end == end:
            return running
    return None


def _verified(item: ExaminedFile, durable: Epoch) -> VerifiedFile:
    count = sum(1 for header in item.walked.headers if header.epoch <= durable)
    headers = tuple(item.walked.headers[:count])
    end = headers[-1].end if headers else FILE_HEADER_BYTES
    running = item.walked.runnings[count - 1]
    voided = None
    if item.extent > end:
        is_torn = item.walked.end == end
        voided = Voided(
            end, item.extent, "torn" if is_torn else f"not durable: epoch {item.walked.headers[count].epoch}"
        )
    return VerifiedFile(item, FileEnd(item.record.number, item.record.identity, end, running), headers, voided)


def set_aside_bytes(files: Files, directory: str, name: str, data: Buffer) -> str:
    """Keep a copy of some bytes under a name that says where they were. Doing it twice keeps one copy."""
    path = join(directory, QUARANTINE, name)
    if files.exists(path) and files.stat(path).size_bytes == len(data):
        return path
    file = files.open(path, writable=True) if files.exists(path) else files.create(path)
    file.write_at(0, [data])
    file.sync()
    file.close()
    files.sync_directory(join(directory, QUARANTINE))
    return path


def set_aside_file(files: Files, directory: str, name: str) -> str:
    """Move a file of the directory into quarantine."""
    path = join(directory, QUARANTINE, free_name(files, directory, name))
    files.rename(join(directory, name), path)
    files.sync_directory(join(directory, QUARANTINE))
    files.sync_directory(directory)
    return path


def free_name(files: Files, directory: str, name: str) -> str:
    taken = set(files.list(join(directory, QUARANTINE)))
    number = 0
    while (candidate := f"{name}.{number}") in taken:
        number += 1
    return candidate


def quarantine_alarm(files: Files, directory: str, bytes_max: int) -> str | None:
    """The alarm of a quarantine that is over its budget; None if it is not."""
    size = quarantine_bytes(files, directory)
    if size <= bytes_max:
        return None
    home = join(directory, QUARANTINE)
    return f"{home} holds {size} bytes, its budget is {bytes_max}: inspect it, and remove what is not needed"


def quarantine_shortage(files: Files, directory: str) -> str | None:
    """The alarm of a disk that is short of space while the quarantine takes some of it; None if it takes none."""
    size = quarantine_bytes(files, directory)
    return f"the disk is short of space, and {join(directory, QUARANTINE)} keeps {size} bytes" if size else None


def quarantine_bytes(files: Files, directory: str) -> int:
    home = join(directory, QUARANTINE)
    total = 0
    for name in files.list(home) if files.exists(home) else ():
        with suppress(NotFound):  # an operator has removed it meanwhile
            total += files.stat(join(home, name)).size_bytes
    return total


REWRITE_BYTES = 1 << 20
FILE_BYTES_MAX = 2 << 30
EPOCHS_IN_MEMORY = 2  # one on its way to the disk, one being gathered: sessions have seen their numbers


@dataclass(slots=True)
class OpenedLog:
    """The result of recovery, from which the store is constructed."""

    manifest: Manifest
    judgement: RecoveredEpoch
    first_epoch: Epoch
    reused: dict[ChannelId, LogFile]  # active files without entries: appended to
    sealed: list[FileRecord]
    witness_sequence: int
    problems: list[str] = field(default_factory=list)

    @contextmanager
    def release_on_error(self) -> Iterator[None]:
        """Close the files if the store is not constructed."""
        try:
            yield
        except BaseException:
            self.manifest.close()
            for participant in self.reused.values():
                release(participant)
            raise


def create_if_missing(files: Files, directory: str, settings: LogSettings, threads: Threads, rng: Random) -> None:
    """A new store: its directories and its first manifest."""
    for name in DIRECTORIES:
        files.make_directories(join(directory, name))
    for name in files.list(join(directory, STAGING)):
        clear_staging(files, join(directory, STAGING, name))
    if files.exists(join(directory, MANIFEST)):
        return
    unknown = [name for name in files.list(directory) if is_wal(name)]
    if unknown:
        raise Damage(f"{directory} has log files ({unknown[0]}) but no manifest", join(directory, MANIFEST), 0)
    size = container_bytes_of(settings, files.sector_bytes(directory))
    streams = {KV_STREAM: StreamRecord(KV_STREAM, "kv", ChannelId(0), is_records=False)}
    state = ManifestState(
        Timeline(TimelineId(rng.id64())), size, max(2, settings.initial_containers), is_clean=True, streams=streams
    )
    Manifest(files, directory, threads, rng, state).close()


def recover(files: Files, directory: str, threads: Threads, rng: Random, clock: Clock) -> OpenedLog:
    """Find the durable epoch, seal what is there and prepare a new run."""
    files.sync_directory(directory)
    state = read_manifest(files, directory)
    if state.is_cut:
        fork = state.timeline.fork(TimelineId(rng.id64()), state.durable)
        state = replace(state, is_cut=False, timeline=fork)
    witness, problems = newest_witness(files, directory, state)
    if witness is not None and state.edits < witness.manifest_edits:
        raise Damage(
            f"the manifest ends with edit {state.edits}, {witness.manifest_edits} were synced",
            join(directory, MANIFEST),
            0,
        )
    judgement = judge_directory(files, directory, state, witness)
    _check_sealed(files, directory, state)
    problems += _set_aside_unknown(files, directory, state)
    for item in judgement.files:
        _make_durable(files, item, witness)
    manifest = Manifest(files, directory, threads, rng, state)
    try:
        for item in judgement.files:
            _quarantine(files, directory, item)
        sealed = [_sealed(item, judgement, clock.wall_ns()) for item in judgement.files if _has_content(item)]
        for record in sealed:
            _rename(files, directory, record)
        if sealed:
            rotate_epoch_file(files, directory, judgement.durable)
            files.sync_directory(directory)
        floor = Epoch(max(judgement.highest_seen, judgement.durable, state.epoch_floor))
        if not state.is_clean:
            floor = Epoch(floor + EPOCHS_IN_MEMORY)
        reused = _reopened(files, [item for item in judgement.files if not _has_content(item)], state)
    except BaseException:
        manifest.close()
        raise
    sequence = witness.sequence if witness else 0
    judgement = replace(judgement, files=())  # a view keeps the disk space of a file, also after its removal
    return OpenedLog(manifest, judgement, Epoch(floor + 1), reused, sealed, sequence, problems)


def opening_edit(opened: OpenedLog, new_files: list[FileRecord], next_number: FileNumber) -> list[Change]:
    """Sealed, voided and new files: the one edit that ends the opening."""
    judgement = opened.judgement
    changes = [file_change(record) for record in (*opened.sealed, *new_files)]
    changes.append(
        set_change(
            next_file=next_number,
            is_clean=False,
            run_first_epoch=opened.first_epoch,
            epoch_floor=Epoch(opened.first_epoch - 1),
            durable=judgement.durable,
            digest=judgement.digest.hex(),
            monotone_ns=judgement.monotone_ns,
        )
    )
    return changes


def rotate_epoch_file(files: Files, directory: str, durable: Epoch) -> None:
    """Give the epoch file its epoch's name; the caller syncs it. One without a witness stays, to be
    written: it would replace the file that a rotation has just put there, together with its witness."""
    path = join(directory, EPOCH)
    if files.exists(path) and read_witness(files, path)[0] is not None:
        files.rename(path, join(directory, rotated_epoch_name(durable)))


def newest_witness(files: Files, directory: str, state: ManifestState) -> tuple[DurableRecord | None, list[str]]:
    """The newest witness of this timeline: the epoch file's, or that of a rotated one if a rotation was
    interrupted. A file that it does not name is taken from an older one: an interrupted opening names its new files
    only, and a file reaches at least as far as it ever did."""
    found: list[DurableRecord] = []
    problems: list[str] = []
    for path, raw in read_epoch_files(files, directory):
        witness, own_problems = witness_in(raw, path)
        problems += own_problems
        if witness is not None and witness.timeline == state.timeline.id:
            found.append(witness)
    if not found:
        return None, problems
    found.sort(key=lambda witness: (witness.durable, witness.sequence))
    ends = {(end.number, end.identity): end for witness in found for end in witness.ends}
    return replace(found[-1], ends=tuple(ends.values())), problems


def judge_directory(
    files: Files, directory: str, state: ManifestState, witness: DurableRecord | None
) -> RecoveredEpoch:
    active = state.of_state(FileState.ACTIVE)
    examined = []
    for record in active:
        view, path = open_record(files, directory, record).map()
        examined.append(examine(record, path, view))
    sealed_to = max((r.last_epoch for r in state.of_state(FileState.SEALED)), default=Epoch(0))
    floor = Epoch(max(state.durable, sealed_to))
    found = judge(examined, witness, floor, bytes.fromhex(state.digest), state.run_first_epoch)
    return replace(found, monotone_ns=max(found.monotone_ns, state.monotone_ns))


def check_settings(settings: LogSettings) -> None:
    if not 1 <= settings.channel_count <= CHANNELS_MAX:
        raise Refused(
            f"{settings.channel_count} channels: a log has 1 to {CHANNELS_MAX}", "set channel_count accordingly"
        )
    # A log sequence number has 32 bits for the place in the file: an epoch behind the limit must still fit.
    largest = settings.rotate_bytes + settings.session_bytes_max
    if largest > FILE_BYTES_MAX:
        raise Refused(
            f"files of {largest} bytes and more: a log file has at most {FILE_BYTES_MAX}",
            "lower rotate_bytes or session_bytes_max: together at most 2 GiB",
        )


def _has_content(item: VerifiedFile) -> bool:
    return len(item.headers) > 1 or item.voided is not None


def _make_durable(files: Files, item: VerifiedFile, witness: DurableRecord | None) -> None:
    """What was found behind the witness is written once more, byte for byte, and synced. Syncing alone is not enough:
    where the sync of an earlier process failed, the system may consider pages clean that the disk never got."""
    mine = item.end.number, item.end.identity
    ends = [end.end for end in (witness.ends if witness else ()) if (end.number, end.identity) == mine]
    file = files.open(item.examined.path, writable=True)
    try:
        for start in range(max(ends, default=FILE_HEADER_BYTES), item.end.end, REWRITE_BYTES):
            file.write_at(start, [bytes(item.examined.view[start : min(start + REWRITE_BYTES, item.end.end)])])
        file.sync()
    finally:
        file.close()


def _check_sealed(files: Files, directory: str, state: ManifestState) -> None:
    """Sealed files have their own names, also those that a snapshot makes superfluous. One whose header is damaged must
    not be moved to quarantine as an unknown file."""
    for record in state.of_state(FileState.SEALED):
        path = join(directory, record.name)
        if record.purpose is FileKind.SNAPSHOT:
            continue
        if not files.exists(path):
            raise Damage(f"log file {record.number} is missing", path, 0)
        if _identity_in(files, path) != (record.number, record.incarnation):
            raise Damage(f"log file {record.number} does not begin with its file header", path, 0)


def _set_aside_unknown(files: Files, directory: str, state: ManifestState) -> list[str]:
    """Log files that no edit ever named: created for an edit that was not committed."""
    known = {(record.number, record.incarnation) for record in state.files.values()}
    problems = []
    for name in files.list(directory):
        if not is_wal(name):
            continue
        path = join(directory, name)
        if _identity_in(files, path) not in known:
            set_aside_file(files, directory, name)
            problems.append(f"{path}: unknown to the manifest, moved to {QUARANTINE}/")
    return problems


def _identity_in(files: Files, path: str) -> tuple[int, int] | None:
    file = files.open(path)
    try:
        header, identity = read_file_header(memoryview(file.read_at(0, FILE_HEADER_BYTES)), path)
        return header.number, identity.incarnation
    except Damage:
        return None
    finally:
        file.close()


def _quarantine(files: Files, directory: str, item: VerifiedFile) -> None:
    if item.voided is not None:
        voided = item.voided
        name = f"{item.examined.record.number:010d}-{voided.start}-{voided.end}.voided"
        set_aside_bytes(files, directory, name, item.examined.view[voided.start : voided.end])


def _sealed(item: VerifiedFile, judgement: RecoveredEpoch, wall_ns: int) -> FileRecord:
    record = item.examined.record
    data = [header for header in item.headers if header.kind == BlockKind.ENTRIES]
    ends: dict[StreamId, Lsn] = {}
    for header in data:
        ends[header.stream] = lsn_of(record.number, header.offset, header.entries - 1)
    return record.changed(
        state=FileState.SEALED,
        name=rotated_name(record.channel, record.number),
        end=item.end.end,
        running=item.end.running,
        entries=sum(header.entries for header in data),
        first_epoch=data[0].epoch if data else Epoch(0),
        last_epoch=data[-1].epoch if data else Epoch(0),
        last_wall_ns=wall_ns,
        sealed_ns=wall_ns,
        sealed_epoch=judgement.durable,
        sealed_digest=judgement.digest.hex(),
        stream_ends=tuple(sorted(ends.items())),
        voided=(item.voided,) if item.voided else (),
    )


def release(participant: LogFile) -> None:
    """Close its file, if it has one."""
    handle, participant.handle = participant.handle, None
    if handle is not None:
        handle.close()


def _reopened(files: Files, items: list[VerifiedFile], state: ManifestState) -> dict[ChannelId, LogFile]:
    reopened: dict[ChannelId, LogFile] = {}
    try:
        for item in items:
            reopened[item.examined.record.channel] = _reopen(files, item, state)
    except BaseException:
        for participant in reopened.values():
            release(participant)
        raise
    return reopened


def _reopen(files: Files, item: VerifiedFile, state: ManifestState) -> LogFile:
    end = item.end
    participant = LogFile(end.number, end.identity, end.end, end.running, state.container_bytes)
    handle = files.open(item.examined.path, writable=True)
    try:
        participant.attach(handle, handle.size())
    except BaseException:
        handle.close()
        raise
    return participant


def _rename(files: Files, directory: str, record: FileRecord) -> None:
    old = find_file(files, directory, record)
    new = join(directory, record.name)
    if old != new:
        files.rename(old, new)
