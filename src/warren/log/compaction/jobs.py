"""Compaction job: merge sealed files into one sorted file in staging. Start-up snapshots use the same job.

A job is plain data, so that it can run in another process. It reads only sealed files, writes only below its own
staging directory, and syncs what it wrote. Number and incarnation of the output are assigned before it is written
(`OutputSlot`); the job returns figures (`OutputFile`), which are a proposal: the owner checks them and makes the
manifest record (`output_record`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.base.threads import Threads
from warren.durability.log_file import run_on
from warren.files.protocol import Files, join
from warren.log.compaction.sorted_file import SortedWriter
from warren.log.file_record import FILE_HEADER_BYTES, FileHeader, FileKind, FileRecord, FileState
from warren.log.merge.external import MergeResources, sorted_merge
from warren.log.read.scan import LogInput
from warren.log.settings import KV_STREAM
from warren.records.block import FileIdentity
from warren.records.columns import EntryColumns


class OutputSlot(NamedTuple):
    """Number and identity of a file to be written."""

    number: FileNumber
    identity: FileIdentity


class OutputFile(NamedTuple):
    """A file that was written, its path in staging, and its figures."""

    place: OutputSlot
    staged: str
    figures: dict[str, Any]


def output_record(
    purpose: FileKind,
    inputs: Sequence[FileRecord],
    epoch: Epoch,
    place: OutputSlot,
    figures: dict[str, Any],
    name: str,
    wall_ns: int,
) -> FileRecord:
    return FileRecord(
        place.number,
        ChannelId(0),
        place.identity.timeline,
        place.identity.incarnation,
        purpose,
        FileState.SEALED,
        name,
        end=figures["end"],
        running=figures["running"],
        entries=figures["entries"],
        first_epoch=min((r.first_epoch for r in inputs if r.entries), default=Epoch(0)),
        last_epoch=epoch,
        sealed_ns=wall_ns,
        index_at=figures["index_at"],
    )


Progress = Callable[[float], None]
OUTPUT = "output"
SPILLS = "spills"


@dataclass(frozen=True, slots=True)
class Job:
    directory: str
    staging: str
    number: FileNumber
    identity: FileIdentity
    purpose: FileKind
    inputs: tuple[FileRecord, ...]
    epoch: Epoch  # entries of later epochs are left out
    is_bottom: bool  # the oldest input is among the inputs: tombstones may go
    memory_bytes: int
    worker_count: int
    created_ns: int

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "staging": self.staging,
            "number": self.number,
            "identity": list(self.identity),
            "purpose": int(self.purpose),
            "inputs": [record.to_json() for record in self.inputs],
            "epoch": self.epoch,
            "is_bottom": self.is_bottom,
            "memory_bytes": self.memory_bytes,
            "worker_count": self.worker_count,
            "created_ns": self.created_ns,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Job:
        timeline, incarnation = raw["identity"]
        values = {
            **raw,
            "identity": FileIdentity(TimelineId(timeline), Incarnation(incarnation)),
            "purpose": FileKind(raw["purpose"]),
            "inputs": tuple(FileRecord.from_json(item) for item in raw["inputs"]),
        }
        return cls(**values)


def run_job(files: Files, threads: Threads, job: Job, progress: Progress) -> dict[str, Any]:
    """Merge; the figures of the file that was written."""
    clear_staging(files, job.staging)
    files.make_directories(job.staging)
    inputs = [LogInput(files, job.directory, record, job.epoch, streams=(KV_STREAM,)) for record in job.inputs]
    entries_in = sum(record.entries for record in job.inputs)
    workshop = MergeResources(threads, files, join(job.staging, SPILLS), job.memory_bytes, job.worker_count)
    done = 0

    def watched() -> Iterator[EntryColumns]:
        nonlocal done
        for batch in sorted_merge(inputs, job.is_bottom, workshop):
            yield batch
            done += batch.count
            progress(min(1.0, done / max(1, entries_in)))

    header = FileHeader(job.number, ChannelId(0), job.purpose, 0, job.created_ns)
    figures = write_sorted(files, join(job.staging, OUTPUT), header, job.identity, job.epoch, watched())
    files.sync_directory(job.staging)
    return {"entries_in": entries_in, **figures}


def write_sorted(
    files: Files, path: str, header: FileHeader, identity: FileIdentity, epoch: Epoch, batches: Iterable[EntryColumns]
) -> dict[str, Any]:
    """A sorted file of these batches, which come in key order; synced, its name not. Its figures for the manifest."""
    raw, checksum = header.placed(identity)
    file = files.create(path)
    try:
        file.write_at(0, [raw])
        writer = SortedWriter(file, identity, FILE_HEADER_BYTES, epoch, run_on(0, checksum))
        for batch in batches:
            writer.add(batch)
        summary = writer.finish()
        file.sync()
    finally:
        file.close()
    return {
        "entries": summary.entries,
        "end": summary.end_offset,
        "running": summary.running_checksum,
        "index_at": summary.index_offset,
    }


def clear_staging(files: Files, path: str) -> None:
    """Remove a staging directory and what is in it: two levels at most, a job makes no more."""
    if not files.exists(path):
        return
    for name in files.list(path):
        inner = join(path, name)
        if files.stat(inner).is_directory:
            clear_staging(files, inner)
        else:
            files.remove(inner)
    files.remove_directory(path)
