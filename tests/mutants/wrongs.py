"""How each seeded fault is done: from the real function to the wrong one.

A function here takes what it replaces and returns what takes its place. What they are for, and where they must show, is
in `faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from zlib import crc32

from warren.base.errors import Misuse, SyncFailed
from warren.base.ids import Epoch
from warren.durability.log_file import EpochWrite, LogFile
from warren.files.protocol import FileStat, join
from warren.log.compaction.compaction import Proposal, check_current
from warren.log.file_record import EPOCH, is_detached_wal, rotated_epoch_name
from warren.log.manifest import ManifestState, file_change, set_change
from warren.log.settings import EntryKind
from warren.records.block import BlockDraft, FileIdentity, Header, check_block
from warren.records.columns import EntryColumns
from warren.records.format import CHECKSUM, CHECKSUM_AT, HEADER, MAGIC, BlockVerdict

Function = Callable[..., Any]


class Wrapped:
    """All that the inner one is, but for what a subclass does wrong."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WithoutDirectorySync(Wrapped):
    """A disk whose directories are not synced."""

    def sync_directory(self, path: str) -> None:
        pass


def no_directory_sync(real: Any) -> Any:
    def open_store(cls: Any, directory: str, settings: Any, environment: Any) -> Any:
        return real.__func__(
            cls, directory, settings, replace(environment, files=WithoutDirectorySync(environment.files))
        )

    return classmethod(open_store)


def confirm_before_sync(real: Function) -> Function:
    def bring_to_disk(commit: Any, parts: list[EpochWrite]) -> None:
        overdue, commit.overdue = getattr(commit, "overdue", []), parts
        for part in overdue:
            with suppress(Misuse):  # a rotation has closed it meanwhile
                part.participant.sync()
        for part in parts:
            part.participant.write(part)

    return bring_to_disk


def closing_omits_participant(real: Function) -> Function:
    def closing(*fields: Any) -> Any:
        *others, parts = fields
        return real(*others, parts[:1])

    return closing


def witness_before_data(real: Function) -> Function:
    def bring_to_disk(commit: Any, parts: list[EpochWrite]) -> None:
        before, commit.durable = commit.durable, commit._previous
        commit._hooks.witness()
        commit.durable = before
        real(commit, parts)

    return bring_to_disk


def catalog_before_rename(real: Function) -> Function:
    def commit(compaction: Any, proposal: Proposal) -> None:
        check_current(compaction._manifest.state, proposal.inputs)
        numbers = tuple(output.number for output in proposal.outputs)
        compaction._manifest.commit([*map(file_change, proposal.outputs), set_change(compacted=numbers)])
        for staged, output in zip(proposal.staged, proposal.outputs, strict=True):
            compaction._files.rename(staged, join(compaction._directory, output.name))
        compaction._files.sync_directory(compaction._directory)

    return commit


def purge_before_commit(real: Function) -> Function:
    def commit(compaction: Any, proposal: Proposal) -> None:
        for record in proposal.inputs:
            compaction._files.remove(join(compaction._directory, record.name))
        real(compaction, proposal)

    return commit


def reused_epoch(real: Function) -> Function:
    def recover(*arguments: Any) -> Any:
        opened = real(*arguments)
        opened.first_epoch = Epoch(opened.judgement.durable + 1)
        return opened

    return recover


class WithoutLinkCounts(Wrapped):
    """A disk on which every file seems to have one name."""

    def stat(self, path: str) -> FileStat:
        found: FileStat = self._inner.stat(path)
        return replace(found, links=1)


def recycled_linked_file(real: Function) -> Function:
    def make(pool: Any, files: Any, *others: Any) -> None:
        real(pool, WithoutLinkCounts(files), *others)

    return make


def unsalted_stale_block(real: Function) -> Function:
    def any_life(view: memoryview, offset: int, identity: FileIdentity | None, *at: int) -> Header | BlockVerdict:
        return check_block(view, offset, None, *at)

    return any_life


def rotated_list_from_directory(real: Function) -> Function:
    def rotate(rotation: Any) -> Any:
        result = real(rotation)
        names = [name for name in rotation._files.list(rotation._directory) if is_detached_wal(name)]
        known = [rotation._manifest.state.files[int(name.rpartition(".")[2])] for name in names]
        return replace(result, rotated=tuple(record.changed(stream_ends=((0, 1),)) for record in known))

    return rotate


def clear_out_of_order(real: Function) -> Function:
    def uncovered(clears: Any, pool: Any, rows: Any) -> Any:
        newest = dict.fromkeys(clears.versions, (1 << 62, 0))
        return real(replace(clears, versions=newest), pool, rows)

    return uncovered


def tombstone_dropped_too_early(real: Function) -> Function:
    def batches(log_input: Any) -> Iterator[EntryColumns]:
        for batch in real(log_input):
            for row, kind in enumerate(batch.kinds.array().tolist()):
                if kind != EntryKind.REMOVE:
                    yield batch.part(row, row + 1)

    return batches


def header_is_not_summed(real: Function) -> Function:
    def place(
        draft: BlockDraft, identity: FileIdentity, offset: int, epoch: Epoch, first: int = 0
    ) -> tuple[bytes, int]:
        header = bytearray(real(draft, identity, offset, epoch, first)[0])
        CHECKSUM.pack_into(header, CHECKSUM_AT, draft.body_checksum)
        return bytes(header), draft.body_checksum

    return place


def header_is_not_checked(real: Function) -> Function:
    def is_whole(view: memoryview, header: Header, offset: int) -> bool:
        start, size = offset + HEADER.size, header.body_bytes
        return start + size <= len(view) and crc32(view[start : start + size]) == header.checksum

    return is_whole


def sync_failure_believed(real: Function) -> Function:
    def write_through(participant: LogFile, part: EpochWrite) -> None:
        try:
            real(participant, part)
        except SyncFailed:
            assert participant.handle is not None
            participant.handle = participant.handle._disk.open(participant.handle.path, writable=True)  # type: ignore[attr-defined]
            participant.handle.sync()

    return write_through


def torn_edit_believed(real: Function) -> Function:
    def walk(view: memoryview, identity: FileIdentity | None) -> Any:
        found = real(view, identity)
        head = view[found.end : found.end + HEADER.size]
        if len(head) == HEADER.size and (raw := HEADER.unpack(head))[0] == MAGIC:
            found.headers.append(Header(raw[1], raw[2], raw[4], raw[5], *raw[6:]))
        return found

    return walk


def found_is_not_synced(real: Function) -> Function:
    return lambda files, item, witness: None


def found_is_only_synced(real: Function) -> Function:
    def make_durable(files: Any, item: Any, witness: Any) -> None:
        file = files.open(item.examined.path, writable=True)
        file.sync()
        file.close()

    return make_durable


def session_across_epochs(real: Function) -> Function:
    def append_drafts(appender: Any, session: Any, channel: int, drafts: Sequence[BlockDraft]) -> Any:
        return [real(appender, session, channel, [draft]) for draft in drafts][-1]

    return append_drafts


def witness_is_replaced(real: Function) -> Function:
    def rotate_epoch_file(files: Any, directory: str, durable: Epoch) -> None:
        if files.exists(join(directory, EPOCH)):
            files.rename(join(directory, EPOCH), join(directory, rotated_epoch_name(durable)))

    return rotate_epoch_file


def nondurable_is_kept(real: Function) -> Function:
    def verified(item: Any, durable: Epoch) -> Any:
        return real(item, item.walked.headers[-1].epoch)

    return verified


def edit_is_not_synced(real: Function) -> Function:
    def commit(manifest: Any, changes: Sequence[Any]) -> Any:
        file, manifest._file = manifest._file, WithoutSync(manifest._file)
        try:
            return real(manifest, changes)
        finally:
            manifest._file = file

    return commit


class WithoutSync(Wrapped):
    """A file that is not synced."""

    def sync(self) -> None:
        pass


def number_given_twice(real: Function) -> Function:
    def apply(state: ManifestState, changes: Iterable[Any]) -> Any:
        changes = list(changes)
        result = [what["next_file"] for verb, what in changes if verb == "set" and "next_file" in what]
        made = real(state, changes)
        return replace(made, next_file=result[-1]) if result else made

    return apply
