"""Streams: named, independent sequences of records, each with a base that moves up.

    stream = store.stream("messages")                        dedicated: files of its own
    stream = store.stream("audit", channel=0)                multiplexed: shares channel 0 with others
    with stream.begin() as session: session.record(b"…")     LSN = file, block offset, index: always increasing
    stream.move_base(lsn)                                    everything before may go

A file goes when every stream in it has moved its base past it. So in a multiplexed channel one stream that never moves
keeps the files of all: put what stays and what passes through on channels of their own. Names are recorded in the
manifest, since no scan of a log could list a stream that has written nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile

from warren.base.errors import Misuse, Refused
from warren.base.ids import ChannelId, Epoch, Lsn, StreamId, lsn_of
from warren.files.protocol import Files
from warren.log.channel import Channel
from warren.log.file_header import Purpose
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest import Manifest
from warren.log.manifest_state import StreamRecord, stream_change
from warren.log.opening import find_file
from warren.log.session import Session
from warren.records.columns import EntryColumns
from warren.records.entries import read_entries
from warren.records.format import BlockKind
from warren.records.walk import walk

STREAMS_MAX = 100
Begin = Callable[[int, StreamId], Session]


class Stream:
    def __init__(self, streams: Streams, identity: StreamId) -> None:
        self._streams = streams
        self.id = identity

    @property
    def record(self) -> StreamRecord:
        return self._streams.manifest.state.streams[self.id]

    @property
    def base(self) -> Lsn:
        """The first LSN that is still valid (the tail); 0 before the first move."""
        return self.record.base

    def begin(self) -> Session:
        return self._streams.begin(self.record.channel, self.id)

    def move_base(self, lsn: Lsn) -> None:
        """Everything of this stream before `lsn` is no longer needed. Durable when it returns; it never moves back."""
        if lsn < self.base:
            raise Misuse(f"the base of stream {self.record.name} is {self.base:#x}: it cannot move back to {lsn:#x}")
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
        channels: list[Channel],
        begin: Begin,
        add_channel: Callable[[StreamRecord], None],
        durable: Callable[[], Epoch],
    ) -> None:
        self._files = files
        self._directory = directory
        self.manifest = manifest
        self._channels = channels
        self.begin = begin
        self._add_channel = add_channel
        self._durable = durable

    def open(self, name: str, channel: int | None = None) -> Stream:
        """The stream of this name; a new one gets a channel of its own, or shares the one named."""
        known = {stream.name: stream for stream in self.manifest.state.streams.values()}
        if name not in known:
            self._create(name, channel)
            known = {stream.name: stream for stream in self.manifest.state.streams.values()}
        return Stream(self, known[name].id)

    def names(self) -> list[str]:
        return [stream.name for _, stream in sorted(self.manifest.state.streams.items())]

    def read(self, stream: Stream, start: Lsn) -> Iterator[tuple[Lsn, EntryColumns]]:
        channel = stream.record.channel
        durable = self._durable()
        for _, record in sorted(self.manifest.state.files.items()):
            if record.channel == channel and record.purpose is Purpose.LOG and record.state is not FileState.DOOMED:
                yield from self._read_file(record, stream.id, start, durable)

    def _read_file(
        self, record: FileRecord, stream: StreamId, start: Lsn, durable: Epoch
    ) -> Iterator[tuple[Lsn, EntryColumns]]:
        file = self._files.open(find_file(self._files, self._directory, record))
        view = file.view()
        file.close()
        stop = record.end if record.state is FileState.SEALED else None
        blocks = takewhile(lambda header: header.epoch <= durable, walk(view, record.identity, 0, stop).headers)
        for header in blocks:
            first = lsn_of(record.number, header.offset)
            if header.kind != BlockKind.ENTRIES or header.stream != stream or first + header.entries <= start:
                continue
            entries = read_entries(view, header)
            skipped = max(0, start - first)
            yield Lsn(first + skipped), entries.part(skipped, entries.count)

    def _create(self, name: str, channel: int | None) -> None:
        state = self.manifest.state
        if len(state.streams) >= STREAMS_MAX:
            raise Refused(f"the log has {STREAMS_MAX} streams, the most it can have", "share one, or use another store")
        if channel is not None and not 0 <= channel < len(self._channels):
            raise Refused(f"there is no channel {channel}", f"channels are 0 … {len(self._channels) - 1}")
        identity = StreamId(max(state.streams, default=StreamId(0)) + 1)
        place = ChannelId(len(self._channels) if channel is None else channel)
        stream = StreamRecord(identity, name, place)
        if channel is None:
            self._add_channel(stream)
        else:
            self.manifest.commit([stream_change(stream)])
