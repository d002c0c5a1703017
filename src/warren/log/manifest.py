"""Manifest: one edit log that says which files are the store.

    block 0: the whole state | block 1: an edit | block 2: an edit | …            blocks of kind EDIT, bodies JSON

An edit is a list of changes. A change is a small JSON list, its first item the verb:

    ["file", {…}]            what is now known of a file
    ["drop", number]         the file has left the store
    ["stream", {…}]          what is now known of a stream
    ["set", {name: value}]   scalars of `ManifestState`

Invariants
* An edit is one block, so it exists whole or not at all. `commit` returns when it is synced.
* Sealing, voiding, the result of a compaction and a purge take effect by an edit, which only the holder of the
  directory lock writes.
* `ManifestState` is a value: an edit makes a new one, and no reader sees half an edit.

On opening for writing the edits are folded into a new manifest, put in place by rename; so is a manifest that has grown
long. A torn last edit was never confirmed and is skipped; a bad one with whole ones behind it is damage. The epoch file
counts the edits that were synced and so reveals whether more is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from warren.base.environment import Random
from warren.base.errors import Damage, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, Lsn, StreamId, TimelineId
from warren.base.threads import Threads
from warren.durability.closing_block import NO_DIGEST
from warren.durability.timeline import Ancestor, Timeline
from warren.files.atomic import replace as replace_file
from warren.files.protocol import Buffer, File, Files, join
from warren.log.file_record import MANIFEST, FileRecord, FileState
from warren.log.read.blocks import next_good, walk
from warren.records.block import FileIdentity, Header, check_block, draft, require_known_format
from warren.records.format import BLOCK_BYTES_MAX, BlockKind, BlockVerdict

MANIFEST_FORMAT = 1
Change = list[Any]


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A named sequence of entries. Streams that share a channel are multiplexed: they share its files."""

    id: StreamId
    name: str
    channel: ChannelId
    base: Lsn = Lsn(0)  # the first LSN that is still valid; everything of the stream before it may go
    is_records: bool = True  # False: key-value entries, which compaction reclaims instead of the base
    is_referring: bool = False  # key-values whose large values stay in its files (log/pointers); it has a base, too

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        if not self.is_referring:
            del plain["is_referring"]  # what an older version can read stays so
        return plain

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> StreamRecord:
        unknown = sorted(set(raw) - {item.name for item in fields(cls)})
        if unknown:
            raise Refused(
                f"the manifest says '{unknown[0]}' of a stream, which this version does not know", "use a newer warren"
            )
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class ManifestState:
    timeline: Timeline
    container_bytes: int
    initial_containers: int
    format: int = MANIFEST_FORMAT
    edits: int = 0  # number of edits since the store was created
    next_file: FileNumber = FileNumber(1)
    run_first_epoch: Epoch = Epoch(1)  # every epoch from here on was numbered one by one
    epoch_floor: Epoch = Epoch(0)  # numbers up to here are used, durable or voided
    durable: Epoch = Epoch(0)  # durable epoch at the last opening or stop
    digest: str = NO_DIGEST.hex()  # chain digest of that epoch
    monotone_ns: int = 0
    horizon: Epoch = Epoch(0)  # history at or before this epoch is gone
    horizon_digest: str = NO_DIGEST.hex()  # chain digest at the horizon: the anchor of what was purged
    is_clean: bool = False  # the last run ended by `close`: no epoch number was given out beyond the durable one
    is_cut: bool = False  # a copy that was cut out of a store: opening it begins a new timeline
    compacted: tuple[FileNumber, ...] = ()  # the compacted files in force, by key range; they share their sources
    reflected: Epoch = Epoch(0)  # everything up to here is in the safe snapshot store, on disk
    snapshot: FileNumber = FileNumber(0)  # the start-up snapshot, 0 for none
    snapshot_epoch: Epoch = Epoch(0)  # … and the epoch it shows
    files: Mapping[FileNumber, FileRecord] = field(default_factory=dict)
    streams: Mapping[StreamId, StreamRecord] = field(default_factory=dict)

    def apply(self, changes: Iterable[Change]) -> ManifestState:
        files, streams = dict(self.files), dict(self.streams)
        scalars: dict[str, Any] = {"edits": self.edits + 1}
        for verb, *what in changes:
            if verb == "file":
                record = FileRecord.from_json(what[0])
                files[record.number] = record
            elif verb == "drop":
                files.pop(what[0], None)
            elif verb == "stream":
                stream = StreamRecord.from_json(what[0])
                streams[stream.id] = stream
            elif verb == "set":
                values = _scalars(what[0])
                if "next_file" in values:  # edits of two threads may arrive in another order than their numbers
                    values["next_file"] = max(values["next_file"], scalars.get("next_file", self.next_file))
                scalars |= values
            else:
                raise Refused(
                    f"the manifest has a change '{verb}', which this version does not know", "use a newer warren"
                )
        return replace(self, files=files, streams=streams, **scalars)

    @property
    def referring(self) -> frozenset[StreamId]:
        """The streams whose large values the snapshot store points to."""
        return frozenset(stream.id for stream in self.streams.values() if stream.is_referring)

    def of_state(self, state: FileState) -> list[FileRecord]:
        return [record for _, record in sorted(self.files.items()) if record.state is state]

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _SCALARS}
        plain["timeline"] = asdict(self.timeline)
        plain["files"] = [record.to_json() for _, record in sorted(self.files.items())]
        plain["streams"] = [stream.to_json() for _, stream in sorted(self.streams.items())]
        return plain

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> ManifestState:
        if raw.get("format", 0) > MANIFEST_FORMAT:
            raise Refused(
                f"the manifest has format {raw['format']}, this warren reads up to {MANIFEST_FORMAT}",
                "use a newer warren",
            )
        scalars = _scalars({name: value for name, value in raw.items() if name not in ("files", "streams")})
        records = [FileRecord.from_json(item) for item in raw["files"]]
        streams = [StreamRecord.from_json(item) for item in raw["streams"]]
        return cls(
            **scalars,
            files={record.number: record for record in records},
            streams={stream.id: stream for stream in streams},
        )


def file_change(record: FileRecord) -> Change:
    return ["file", record.to_json()]


def drop_change(number: FileNumber) -> Change:
    return ["drop", number]


def stream_change(stream: StreamRecord) -> Change:
    return ["stream", stream.to_json()]


def set_change(**values: Any) -> Change:
    unknown = sorted(set(values) - _SCALARS)
    assert not unknown, f"no such scalar in the manifest: {unknown}"
    return ["set", values | ({"timeline": asdict(values["timeline"])} if "timeline" in values else {})]


def _scalars(raw: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(raw) - _SCALARS)
    if unknown:
        raise Refused(f"the manifest sets '{unknown[0]}', which this version does not know", "use a newer warren")
    values = dict(raw)
    if "compacted" in raw:
        values["compacted"] = tuple(raw["compacted"])
    if "timeline" in raw:
        timeline = raw["timeline"]
        ancestry = tuple(
            Ancestor(TimelineId(item["timeline"]), Epoch(item["fork_epoch"])) for item in timeline["ancestry"]
        )
        values["timeline"] = Timeline(TimelineId(timeline["id"]), ancestry)
    return values


_SCALARS = {item.name for item in fields(ManifestState)} - {"files", "streams"}


FOLD_BYTES = 1 << 20


def read_manifest(files: Files, directory: str) -> ManifestState:
    """The state as of the last whole edit."""
    path = join(directory, MANIFEST)
    file = files.open(path)
    try:
        view = memoryview(file.read_at(0, file.size()))
    finally:
        file.close()
    first = check_block(view, 0, None)
    if isinstance(first, BlockVerdict) or first.kind != BlockKind.EDIT:
        raise Damage("the manifest does not begin with a whole edit", path, 0)
    require_known_format(first, path)
    identity = FileIdentity(first.timeline, first.incarnation)
    walked = walk(view, identity)
    if next_good(view, identity, walked.end) is not None:
        raise Damage("a manifest edit is damaged: whole ones stand behind it", path, walked.end)
    state = _decoded(ManifestState.from_json, view, first, path)
    for header in walked.headers[1:]:
        require_known_format(header, path)
        if header.first != state.edits + 1:
            raise Damage(f"the manifest misses edit {state.edits + 1}", path, header.offset)
        state = _decoded(state.apply, view, header, path)
    return state


def _decoded(decode: Callable[[Any], ManifestState], view: memoryview, header: Header, path: str) -> ManifestState:
    """The state after a block of the manifest."""
    try:
        return decode(json.loads(bytes(view[header.body_at : header.end]).rstrip(b"\0")))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Damage(f"a manifest edit is whole and makes no sense ({error!r})", path, header.offset) from error


class Manifest:
    """The manifest, open for writing by the holder of the directory lock."""

    def __init__(self, files: Files, directory: str, threads: Threads, rng: Random, state: ManifestState) -> None:
        """Fold `state` into a new manifest file and take it over."""
        self._files = files
        self._directory = directory
        self._path = join(directory, MANIFEST)
        self._rng = rng
        self._lock = threads.condition()
        self._file: File | None = None
        self.state = state
        self._fold(state)

    def commit(self, changes: Sequence[Change]) -> ManifestState:
        """Make these changes, all or none. Returns when they are durable. May be repeated after `OutOfRoom`."""
        with self._lock:
            return self._commit(changes)

    def _commit(self, changes: Sequence[Change]) -> ManifestState:
        state = self.state.apply(changes)
        if self._end > FOLD_BYTES:
            self._fold(state)
        else:
            pieces, size = self._block(changes, state.edits, self._end)
            file = self._file
            assert file is not None
            file.write_at(self._end, pieces)
            file.sync()
            self._end += size
        self.state = state
        return state

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _fold(self, state: ManifestState) -> None:
        self._identity = FileIdentity(state.timeline.id, Incarnation(self._rng.id64()))
        pieces, size = self._block(state.to_json(), state.edits, 0)
        replace_file(self._files, self._path, pieces)
        self.close()
        self._file = self._files.open(self._path, writable=True)
        self._end = size

    def _block(self, body: object, edits: int, offset: int) -> tuple[list[Buffer], int]:
        raw = json.dumps(body, separators=(",", ":")).encode()
        if len(raw) > BLOCK_BYTES_MAX:
            raise Refused("the manifest has grown beyond 8 MiB", "compact the log: it has too many files")
        block = draft(BlockKind.EDIT, [raw])
        header, _ = block.place(self._identity, offset, Epoch(0), edits)
        return [header, *block.pieces], block.size_bytes
