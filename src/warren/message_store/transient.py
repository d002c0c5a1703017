"""Transient store: contents that need not survive a restart, paged out of memory.

    page out ──write──▶ plain files ──read──▶ back        remove: the contents are not needed any more

It is not in the log, and deleted at every start. Each unit has an entry in the index, since its liveness is recorded
nowhere else; a queue keeps one `stored` per group of messages paged out together. Reading and collecting are shared
with the persistent store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from warren.base.ids import FileNumber, Lsn
from warren.base.messages import sizes_of
from warren.base.threads import Condition
from warren.message_store.body_files import BodyFiles
from warren.message_store.body_format import CHUNK_BYTES, decode_stored, encode_stored
from warren.message_store.index import IndexEntry, LocationIndex
from warren.message_store.liveness import FileStatistics
from warren.message_store.read import BodyReader, location_of, shares, write_units


class TransientStore:
    def __init__(
        self,
        body_files: BodyFiles,
        index: LocationIndex,
        statistics: FileStatistics,
        lock: Condition,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._body_files = body_files
        self._index = index
        self._statistics = statistics
        self._lock = lock
        self._writing: list[FileNumber] = []  # first file of each write in progress
        self._chunk_bytes = chunk_bytes
        self.ended: deque[tuple[Lsn, IndexEntry]] = deque()  # for the collector
        self.read = BodyReader(body_files, index).read

    def write(self, contents: Sequence[bytes]) -> bytes:
        """Store contents; returns their location, for `read` and `remove`."""
        with self._lock:
            begun = self._body_files.present_file()
            self._writing.append(begun)
        try:
            units = write_units(self._body_files, contents, sizes_of(contents), (), self._chunk_bytes)
            for unit in units:
                self._index.insert(unit.id, IndexEntry(1, encode_stored([unit], self._chunk_bytes)))
        finally:
            with self._lock:
                self._writing.remove(begun)
        return encode_stored(units, self._chunk_bytes)

    def remove(self, stored: bytes) -> None:
        """Release contents."""
        for unit in decode_stored(stored).units:
            if self._index.add_references(unit.id, -1) == 0 and (entry := self._index.look_up(unit.id)) is not None:
                self.ended.append((unit.id, entry))
            moved = location_of(self._index, unit.id)
            places = (moved.unit if moved is not None else unit).places
            for place, share in zip(places, shares(max(1, unit.size_bytes), [1] * len(places)), strict=True):
                self._statistics.note_dead(place.file, share)

    def is_settled(self, file: FileNumber) -> bool:
        """Whether the index has every unit of this sealed file: no write in progress began in it or before."""
        with self._lock:
            return all(file < begun for begun in self._writing)

    def facts(self) -> Mapping[str, int]:
        return self._index.facts()
