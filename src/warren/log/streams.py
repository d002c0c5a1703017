"""Streams: named, independent sequences of records, each with a base that moves up.

    stream = store.stream("messages")                        dedicated: files of its own
    stream = store.stream("audit", channel=0)                multiplexed: shares channel 0 with others
    with stream.begin() as session: session.record(b"…")     LSN = file, block offset, index: always increasing
    stream.move_base(lsn)                                    everything before may be purged

A file is purged when every stream in it has moved its base past it. So in a multiplexed channel one stream that never
moves keeps the files of all: put long-lived and passing records on channels of their own. Names are recorded in the
manifest, since no scan of a log could list a stream that has written nothing.

A file in the middle can be purged as well, if the owner of the stream needs nothing in it any more (`release`): the
manifest then says of the file that the stream does not end in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import takewhile

from warren.base.errors import Damage, Gone, Misuse, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Lsn, StreamId, lsn_of
from warren.base.threads import Condition
from warren.files.protocol import Files, join
from warren.log.file_record import FileKind, FileRecord, FileState
from warren.log.log_files import open_record
from warren.log.manifest import Manifest, StreamRecord, file_change, stream_change
from warren.log.read.blocks import sealed_walks, walk
from warren.log.session import Session
from warren.log.writer import LogChannel
from warren.records.block import Header
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.format import BlockKind

STREAMS_MAX = 100
Begin = Callable[[int, StreamId], Session]


class Stream:
    def __init__(self, streams: Streams, identity: StreamId, begin: Callable[[], Session]) -> None:
        self._streams = streams
        self.id = identity
        self.begin = begin  # a session of this stream

    @property
    def record(self) -> StreamRecord:
        return self._streams.manifest.state.streams[self.id]

    @property
    def base(self) -> Lsn:
        """The first LSN that is still valid (the tail); 0 before the first move."""
        return self.record.base

    @property
    def end(self) -> Lsn:
        """Behind the newest record: the next one has this LSN, or a later one."""
        return self._streams.end(self)

    def move_base(self, lsn: Lsn) -> None:
        """Everything of this stream before `lsn` is no longer needed. Durable when it returns; it never moves back, nor
        beyond the end, where records that are still to come would be lost."""
        if lsn < self.base:
            raise Misuse(f"the base of stream {self.record.name} is {self.base:#x}: it cannot move back to {lsn:#x}")
        if lsn > self.end:
            raise Misuse(f"stream {self.record.name} ends at {self.end:#x}: its base cannot move on to {lsn:#x}")
        self._streams.manifest.commit([stream_change(replace(self.record, base=lsn))])

    def read(self, start: Lsn = Lsn(0)) -> Iterator[tuple[Lsn, EntryColumns]]:
        """Durable records from `start` (or the base) on, block by block: the LSN of the first, and the records."""
        return self._streams.read(self, max(start, self.base))


class Streams:
    def __init__(
        self,
        files: Files,
        directory: str,
        manifest: Manifest,
        channels: list[LogChannel],
        begin: Begin,
        add_channel: Callable[[StreamRecord], None],
        durable: Callable[[], Epoch],
        lock: Condition,
    ) -> None:
        self._files = files
        self._directory = directory
        self.manifest = manifest
        self._channels = channels
        self._begin = begin
        self._add_channel = add_channel
        self._durable = durable
        self._lock = lock

    def open(self, name: str, channel: int | None = None, is_referring: bool = False) -> Stream:
        """The stream of this name; a new one gets a channel of its own, or shares the one named."""
        with self._lock:
            known = self._by_name()
            if name in known and not known[name].is_records:
                raise Refused(f"stream {name} holds the key-values: it takes no records", "choose another name")
            if name not in known:
                self._create(name, channel, is_referring)
            found = self._by_name()[name]
            if found.is_referring != is_referring:
                kind = "holds key-values that are referred to" if found.is_referring else "holds records only"
                raise Refused(f"stream {name} {kind}", "choose another name")
            return Stream(self, found.id, partial(self._begin, found.channel, found.id))

    def release(self, stream: Stream, numbers: Collection[FileNumber]) -> None:
        """The stream needs nothing in these sealed files any more; durable when it returns. The base moves up to the
        first file that is still needed."""
        with self._lock:
            files = self.manifest.state.files
            sealed = [files[n] for n in sorted(numbers) if n in files and files[n].state is FileState.SEALED]
            changes = [file_change(r.changed(stream_ends=_without(r, stream))) for r in sealed]
            needed = [n for n, r in files.items() if _is_read(r, stream, stream.base) and n not in numbers]
            base = max(stream.base, min([*(lsn_of(n, 0) for n in needed), stream.end]))
            if changes:
                self.manifest.commit([*changes, stream_change(replace(stream.record, base=base))])

    def _by_name(self) -> dict[str, StreamRecord]:
        return {stream.name: stream for stream in self.manifest.state.streams.values()}

    def names(self) -> list[str]:
        return [stream.name for _, stream in sorted(self.manifest.state.streams.items())]

    def end(self, stream: Stream) -> Lsn:
        channel = self._channels[stream.record.channel]
        participant, last = channel.participant, channel.stream_ends.get(stream.id)
        behind_blocks = lsn_of(participant.number, participant.end)
        return behind_blocks if last is None else max(behind_blocks, Lsn(last + 1))

    def read(self, stream: Stream, start: Lsn) -> Iterator[tuple[Lsn, EntryColumns]]:
        durable = self._durable()
        for number in [number for number, r in sorted(self.manifest.state.files.items()) if _is_read(r, stream, start)]:
            yield from self._read_file(stream, number, start, durable)

    def _read_file(
        self, stream: Stream, number: FileNumber, start: Lsn, durable: Epoch
    ) -> Iterator[tuple[Lsn, EntryColumns]]:
        record, view = self._mapped(stream, number)
        for header in takewhile(lambda header: header.epoch <= durable, self._blocks(stream, record, view)):
            first = lsn_of(number, header.offset)
            if header.kind != BlockKind.ENTRIES or header.stream != stream.id or first + header.entries <= start:
                continue
            # Copied, then checked: a file that was purged meanwhile may be recycled and contain another file's bytes.
            copied = memoryview(bytes(view[header.offset : header.end]))
            self._current(stream, number)
            entries = read_entries(copied, header._replace(offset=0))
            skipped = max(0, start - first)
            yield Lsn(first + skipped), entries.part(skipped, entries.count)

    def _blocks(self, stream: Stream, record: FileRecord, view: memoryview) -> Iterator[Header]:
        """The blocks of a file as far as they count. A sealed one must be whole."""
        if record.state is FileState.ACTIVE:
            yield from walk(view, record.identity).headers
            return
        try:
            for walked in sealed_walks(view, record, join(self._directory, record.name)):
                yield from walked.headers
        except Damage:
            self._current(stream, record.number)  # purged and recycled meanwhile: the error names the base
            raise

    def _mapped(self, stream: Stream, number: FileNumber) -> tuple[FileRecord, memoryview]:
        record = self._current(stream, number)
        try:
            return record, open_record(self._files, self._directory, record).map()[0]
        except (Damage, Gone):
            self._current(stream, number)  # purged meanwhile: the error names the base
            raise

    def _current(self, stream: Stream, number: FileNumber) -> FileRecord:
        record = self.manifest.state.files.get(number)
        if record is None or record.state is FileState.DOOMED:
            what = f"stream {stream.record.name}: log file {number} is gone, the base is {stream.base:#x}"
            raise Gone(what, "read on from the base")
        return record

    def _create(self, name: str, channel: int | None, is_referring: bool) -> None:
        state = self.manifest.state
        if len(state.streams) >= STREAMS_MAX:
            raise Refused(f"the log has {STREAMS_MAX} streams, the most it can have", "share one, or use another store")
        if channel is not None and not 0 <= channel < len(self._channels):
            raise Refused(f"there is no channel {channel}", f"channels are 0 … {len(self._channels) - 1}")
        identity = StreamId(max(state.streams, default=StreamId(0)) + 1)
        place = ChannelId(len(self._channels) if channel is None else channel)
        stream = StreamRecord(identity, name, place, is_referring=is_referring)
        if channel is None:
            self._add_channel(stream)
        else:
            self.manifest.commit([stream_change(stream)])


def _without(record: FileRecord, stream: Stream) -> tuple[tuple[int, int], ...]:
    return tuple(end for end in record.stream_ends if end[0] != stream.id)


def _is_read(record: FileRecord, stream: Stream, start: Lsn) -> bool:
    """Whether the file may contain records of the stream from `start` on."""
    if record.channel != stream.record.channel or record.purpose is not FileKind.LOG:
        return False
    if record.state is FileState.ACTIVE:
        return True
    return record.state is FileState.SEALED and dict(record.stream_ends).get(stream.id, -1) >= start
