"""Tables of plain Parquet: directories with a manifest that appear by one rename.

    snapshot    TARGET/part-00000.parquet …  TARGET/_MANIFEST.json
    export      TARGET/batch-<first>-<last>/part-00000.parquet …  and _MANIFEST.json in each

Both are written in a staging directory and renamed after every byte is synced. So any reader, also one that ignores
manifests, sees all of a snapshot or batch, or nothing of it. The newest batch is the position of an export: its name
has the epochs, its manifest the timeline.

A snapshot is staged beside its target and renamed to it. An overwritten snapshot is renamed away just before; if the
job dies in between, the next job restores the old snapshot first.
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
    """The last epoch in the name of a batch; None for other names."""
    found = _BATCH.fullmatch(name)
    return Epoch(int(found[2])) if found else None


class ParquetSnapshot:
    def __init__(self, environment: Environment, target: str, overwrite: bool) -> None:
        self._environment = environment
        self._files = environment.files
        self._target = target.rstrip("/")
        self._overwrite = overwrite

    def check(self) -> None:
        """Refuse a target with anything but a snapshot, or with one that may not be overwritten."""
        names = names_in(self._files, self._target)
        if not names:
            return
        if MANIFEST not in names:
            raise not_ours(self._target, names, "snapshot")
        manifest = read_manifest(self._files, self._target, SNAPSHOT)
        if not self._overwrite:
            raise Refused(
                f"{self._target} has the snapshot of epoch {manifest['epoch']} already",
                "choose another target, or replace it with --overwrite",
            )

    def admit(self, timeline: Timeline) -> None:
        """A snapshot may replace that of any store."""

    def position(self) -> Position | None:
        """None: an existing snapshot is always written again."""
        return None

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        with staging(self._environment, f"{self._target}.staging", self._restore_old) as made:
            self.check()
            yield made

    def commit(self, made: Staging, batch: TableBatch, metadata: dict[str, Any]) -> None:
        files, target, old = self._files, self._target, join(made.home, _OLD)
        write_manifest(files, made.whole, SNAPSHOT, batch, metadata)
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

    def _restore_old(self, home: str) -> None:
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
        """Nothing to remove: a renamed batch is committed."""

    def position(self) -> Position | None:
        batches = [(last, name) for name in names_in(self._files, self._target) if (last := last_of_name(name))]
        if not batches:
            return None
        last, name = max(batches)
        position = Position.from_json(read_manifest(self._files, join(self._target, name), EXPORT))
        if position.epoch != last:
            raise Refused(f"{join(self._target, name)} ends with epoch {position.epoch}", "it was renamed")
        return position

    def commit(self, made: Staging, batch: TableBatch, metadata: dict[str, Any]) -> None:
        write_manifest(self._files, made.whole, EXPORT, batch, metadata)
        self._files.rename(made.whole, join(self._target, batch_name(batch.first, batch.last)))
        self._files.sync_directory(self._target)


def write_manifest(files: Files, folder: str, what: str, batch: TableBatch, metadata: dict[str, Any]) -> None:
    manifest = {
        "what": what,
        "version": _VERSION,
        **batch.position.to_json(),
        **metadata,
        "rows": batch.rows,
        "bytes": batch.size_bytes,
        "files": [part.to_json() for part in batch.parts],
    }
    atomic.replace(files, join(folder, MANIFEST), [json.dumps(manifest, indent=2).encode()])


def read_manifest(files: Files, folder: str, what: str) -> dict[str, Any]:
    """The manifest in a directory; refused if it is of another kind or version."""
    path = join(folder, MANIFEST)
    file = files.open(path)
    try:
        raw = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        manifest: dict[str, Any] = json.loads(raw)
        if (kind := manifest["what"], version := manifest["version"]) == (what, _VERSION):
            Position.from_json(manifest)
            return manifest
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"{path} is no manifest of warren: {error!r}", "name an empty directory, or a new one") from None
    raise Refused(f"{path} is that of a {kind}, version {version}", f"expected: a {what}, version {_VERSION}")
