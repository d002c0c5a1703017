"""Tables of plain Parquet: directories that appear whole, by one rename, with a manifest in them.

    snapshot    TARGET/part-00000.parquet …  TARGET/_MANIFEST.json
    export      TARGET/batch-<first>-<last>/part-00000.parquet …  and _MANIFEST.json in each

Both are made in a staging directory and renamed when every byte of them is synced. So any reader, also one that knows
nothing of manifests, sees all of a snapshot or of a batch, or nothing of it. The newest batch says where an export
stands: its name has the epochs, its manifest the timeline.

A snapshot is staged beside its target, which it becomes. One that is overwritten leaves its name a moment before the
new one takes it; if a job dies just then, the next one puts the old snapshot back before it does anything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from warren.base.errors import Refused, WarrenError
from warren.base.ids import Epoch
from warren.durability.timeline import Timeline
from warren.files import atomic
from warren.files.environment import Environment
from warren.files.protocol import Files, join, parent
from warren.pipeline.jobs.tables import (
    LOCK,
    MANIFEST,
    STAGING,
    Position,
    Staging,
    TableBatch,
    names_in,
    not_ours,
    staging,
)

SNAPSHOT = "warren snapshot"
EXPORT = "warren export"
_VERSION = 1
_OLD = "old"
_BATCH = re.compile(r"batch-(\d{20})-(\d{20})")


def batch_name(first: Epoch, last: Epoch) -> str:
    return f"batch-{first:020d}-{last:020d}"


def last_of_name(name: str) -> Epoch | None:
    """The last epoch of a batch, None if this is no batch's name."""
    found = _BATCH.fullmatch(name)
    return Epoch(int(found[2])) if found else None


class ParquetSnapshot:
    def __init__(self, environment: Environment, target: str, overwrite: bool) -> None:
        self._environment = environment
        self._files = environment.files
        self._target = target.rstrip("/")
        self._overwrite = overwrite

    def check(self) -> None:
        """Refuse a target that holds anything but a snapshot, or one that shall stay."""
        names = names_in(self._files, self._target)
        if not names:
            return
        if MANIFEST not in names:
            raise not_ours(self._target, names, "snapshot")
        told = read_manifest(self._files, self._target, SNAPSHOT)
        if not self._overwrite:
            raise Refused(
                f"{self._target} has the snapshot of epoch {told['epoch']} already",
                "choose another target, or replace it with --overwrite",
            )

    def admit(self, timeline: Timeline) -> None:
        """A snapshot that is replaced may have been any store's."""

    def position(self) -> Position | None:
        """None: what is there does not spare making it anew."""
        return None

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        with staging(self._environment, f"{self._target}.staging", self._put_back) as made:
            self.check()
            yield made

    def commit(self, made: Staging, batch: TableBatch, told: dict[str, Any]) -> None:
        files, target, old = self._files, self._target, join(made.home, _OLD)
        write_manifest(files, made.whole, SNAPSHOT, batch, told)
        is_replaced = bool(names_in(files, target))
        if is_replaced:
            self.check()
            files.rename(target, old)
        try:
            files.rename(made.whole, target)
        except WarrenError:
            if is_replaced:
                files.rename(old, target)
            raise
        files.sync_directory(parent(target))

    def _put_back(self, home: str) -> None:
        old = join(home, _OLD)
        if self._files.exists(old) and not names_in(self._files, self._target):
            self._files.rename(old, self._target)
            self._files.sync_directory(parent(self._target))


class ParquetExport:
    def __init__(self, environment: Environment, target: str) -> None:
        self._environment = environment
        self._files = environment.files
        self._target = target

    def check(self) -> None:
        names = names_in(self._files, self._target)
        ours = [name for name in names if name == LOCK or name.startswith(f"{STAGING}-") or last_of_name(name)]
        if len(ours) < len(names):
            raise not_ours(self._target, [name for name in names if name not in ours], "Parquet export")

    def tidy(self) -> None:
        """Nothing is left over here: what was renamed is committed."""

    def position(self) -> Position | None:
        batches = [(last, name) for name in names_in(self._files, self._target) if (last := last_of_name(name))]
        if not batches:
            return None
        last, name = max(batches)
        told = Position.from_json(read_manifest(self._files, join(self._target, name), EXPORT))
        if told.epoch != last:
            raise Refused(f"{join(self._target, name)} says that it ends with epoch {told.epoch}", "it was renamed")
        return told

    def commit(self, made: Staging, batch: TableBatch, told: dict[str, Any]) -> None:
        write_manifest(self._files, made.whole, EXPORT, batch, told)
        self._files.rename(made.whole, join(self._target, batch_name(batch.first, batch.last)))
        self._files.sync_directory(self._target)


def write_manifest(files: Files, folder: str, what: str, batch: TableBatch, told: dict[str, Any]) -> None:
    manifest = {
        "what": what,
        "version": _VERSION,
        **batch.position.to_json(),
        **told,
        "rows": batch.rows,
        "bytes": batch.size_bytes,
        "files": [part.to_json() for part in batch.parts],
    }
    atomic.replace(files, join(folder, MANIFEST), [json.dumps(manifest, indent=2).encode()])


def read_manifest(files: Files, folder: str, what: str) -> dict[str, Any]:
    """The manifest in a directory, if it is one of this kind."""
    path = join(folder, MANIFEST)
    file = files.open(path)
    try:
        raw = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        told: dict[str, Any] = json.loads(raw)
        if (kind := told["what"], version := told["version"]) == (what, _VERSION):
            Position.from_json(told)
            return told
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"{path} is no manifest of warren: {error!r}", "name an empty directory, or a new one") from None
    raise Refused(f"{path} is that of a {kind}, version {version}", f"a {what}, version {_VERSION}, was looked for")
