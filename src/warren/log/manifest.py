"""The manifest: one edit log that says which files are the store.

    block 0: the whole state | block 1: an edit | block 2: an edit | …            blocks of kind EDIT, bodies JSON

An edit is one block, so it is there or it is not. `commit` returns when it is synced. Whatever is to become of files
— sealing, voiding, a compaction's result, a purge — happens when an edit says so, and only the holder of the
directory lock writes one. On opening for writing the edits are folded into a new manifest, put in place by rename; so
is a manifest that has grown long.

A torn last edit was never answered and is passed over; a bad one with whole ones behind it is damage. Whether more
than that is missing the epoch file knows, which counts the edits that were synced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from warren.base.chance import Random
from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, Incarnation
from warren.base.threads import Threads
from warren.files.atomic import replace as replace_file
from warren.files.protocol import Buffer, File, Files, join
from warren.log.layout import MANIFEST
from warren.log.manifest_state import Change, ManifestState
from warren.records.block import FileIdentity, Header, draft, look, require_known_format
from warren.records.format import BLOCK_BYTES_MAX, BlockKind
from warren.records.verdict import BlockVerdict
from warren.records.walk import next_good, walk

FOLD_BYTES = 1 << 20


def read_manifest(files: Files, directory: str) -> ManifestState:
    """The state as of the last whole edit."""
    path = join(directory, MANIFEST)
    file = files.open(path)
    try:
        view = memoryview(file.read_at(0, file.size()))
    finally:
        file.close()
    first = look(view, 0, None)
    if isinstance(first, BlockVerdict) or first.kind != BlockKind.EDIT:
        raise Damage("the manifest does not begin with a whole edit", path, 0)
    require_known_format(first, path)
    identity = FileIdentity(first.timeline, first.incarnation)
    walked = walk(view, identity)
    if next_good(view, identity, walked.end) is not None:
        raise Damage("a manifest edit is damaged: whole ones stand behind it", path, walked.end)
    state = _said(ManifestState.from_json, view, first, path)
    for header in walked.headers[1:]:
        require_known_format(header, path)
        if header.first != state.edits + 1:
            raise Damage(f"the manifest misses edit {state.edits + 1}", path, header.offset)
        state = _said(state.apply, view, header, path)
    return state


def _said(take: Callable[[Any], ManifestState], view: memoryview, header: Header, path: str) -> ManifestState:
    """What a block of the manifest makes of the state, if it is one of ours."""
    try:
        return take(json.loads(bytes(view[header.body_at : header.end]).rstrip(b"\0")))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Damage(f"a manifest edit is whole and makes no sense ({error!r})", path, header.offset) from error


class Manifest:
    """The manifest in the hands of its owner."""

    def __init__(self, files: Files, directory: str, threads: Threads, chance: Random, state: ManifestState) -> None:
        """Fold `state` into a new manifest file and take it over."""
        self._files = files
        self._directory = directory
        self._path = join(directory, MANIFEST)
        self._chance = chance
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
        self._identity = FileIdentity(state.timeline.id, Incarnation(self._chance.id64()))
        pieces, size = self._block(state.to_json(), state.edits, 0)
        replace_file(self._files, self._path, pieces)
        self.close()
        self._file = self._files.open(self._path, writable=True)
        self._end = size

    def _block(self, body: object, edits: int, offset: int) -> tuple[list[Buffer], int]:
        told = json.dumps(body, separators=(",", ":")).encode()
        if len(told) > BLOCK_BYTES_MAX:
            raise Refused("the manifest has grown beyond 8 MiB", "compact the log: it has too many files")
        made = draft(BlockKind.EDIT, [told])
        header, _ = made.place(self._identity, offset, Epoch(0), edits)
        return [header, *made.pieces], made.size_bytes
