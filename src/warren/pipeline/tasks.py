"""Execution of a task on an executor: check its parts, then return them as Arrow batches.

Checking, decoding and merging are in `log/`. This module chooses among them by view, and handles damage: `fail` raises
it with file and offset, `skip` leaves out the damaged blocks, which view `damage` lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from warren.base.errors import Damage, Gone, Refused
from warren.base.ids import Epoch
from warren.catalog.rows import without_credentials
from warren.files.environment import Environment
from warren.log.merge.external import Bucket, newest_values
from warren.log.read.blocks import FileScan, Problem
from warren.log.read.parts import EntryBlock, FilePart, PartInput, entry_blocks, missing, scan_part
from warren.log.read.scan import refuse_damage
from warren.log.settings import KV_STREAM
from warren.pipeline.arrow import Chunk, batches_of
from warren.pipeline.planning import Task, pins_of, shared_pin, take_pin
from warren.pipeline.schema import SelectedColumn, TableView
from warren.records.columns import EntryColumns

MERGE_MEMORY_BYTES = 1 << 30
EVERY_EPOCH = Epoch((1 << 64) - 1)


def run(
    task: Task, fields: Sequence[SelectedColumn], schema: Any, environment: Environment | None = None
) -> Iterator[Any]:
    """The task's rows as batches of this Arrow schema."""
    work = {TableView.ENTRIES: _entries, TableView.KV: _state, TableView.DAMAGE: _damage}[task.view]
    environment = environment or Environment.real()
    with shared_pin(environment, task), _task_pin(environment, task) as renew:
        for batch in work(environment, task, fields, schema):
            renew()
            yield batch


@contextmanager
def _task_pin(environment: Environment, task: Task) -> Iterator[Callable[[], None]]:
    """A pin for the task while it runs; the yielded function renews it once a third of its time is over."""
    if not task.pin_seconds:
        yield lambda: None
        return
    pins, seconds = pins_of(environment, task.directory), task.pin_seconds
    pin = take_pin(pins, "task", seconds, task.numbers)

    def renew() -> None:
        nonlocal pin
        if pins.seconds_left(pin) < seconds * 2 / 3:
            pin = pins.renew(pin, seconds)

    try:
        yield renew
    finally:
        pins.release(pin)


def _entries(environment: Environment, task: Task, fields: Sequence[SelectedColumn], schema: Any) -> Iterator[Any]:
    return batches_of(_chunks(environment, task), fields, schema)


def _chunks(environment: Environment, task: Task) -> Iterator[Chunk]:
    for part in task.parts:
        for block in entry_blocks(_scanned(environment, task, part), task.first, task.last):
            if not task.skips_damage or _undecodable(block) is None:
                yield Chunk.of_block(block, _shown(task))


def _state(environment: Environment, task: Task, fields: Sequence[SelectedColumn], schema: Any) -> Iterator[Any]:
    with_values = any(field.name == "value" for field in fields)
    inputs = [Bucket(_input(environment, task, part), task.bucket, task.buckets, with_values) for part in task.parts]
    newest = newest_values(inputs, MERGE_MEMORY_BYTES)
    return batches_of((Chunk.of_columns(_shown(task)(columns)) for columns in newest), fields, schema)


def _shown(task: Task) -> Callable[[EntryColumns], EntryColumns]:
    return (lambda columns: columns) if task.shows_credentials else without_credentials


def _input(environment: Environment, task: Task, part: FilePart) -> PartInput:
    on_damage = (lambda damage: None) if task.skips_damage else None
    return PartInput(lambda: _scanned(environment, task, part), part, task.last, (KV_STREAM,), on_damage)


def _scanned(environment: Environment, task: Task, part: FilePart) -> FileScan:
    """A checked part. Damage is an error unless it is skipped; a purged file is always an error."""
    try:
        scan = scan_part(environment.files, task.directory, part)
    except Gone:
        raise
    except (Damage, Refused) as error:
        if not task.skips_damage:
            raise
        return missing(part, task.directory, error)
    if not task.skips_damage:
        refuse_damage(scan)
    return scan


def _damage(environment: Environment, task: Task, fields: Sequence[SelectedColumn], schema: Any) -> Iterator[Any]:
    for part in task.parts:
        try:
            scan = scan_part(environment.files, task.directory, part)
        except Gone:
            raise
        except (Damage, Refused) as error:
            scan = missing(part, task.directory, error)
        rows = [_row(scan.path, problem) for problem in _problems(scan)]
        if rows:
            columns = [pa.array([row[field.name] for row in rows], schema.field(field.name).type) for field in fields]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _problems(scan: FileScan) -> Iterator[Problem]:
    yield from scan.problems
    for block in entry_blocks(scan, Epoch(0), EVERY_EPOCH):
        if (damage := _undecodable(block)) is not None:
            yield Problem(damage.bare, block.header.offset, block.header.end)


def _undecodable(block: EntryBlock) -> Damage | None:
    """The damage if the columns of a block cannot be decoded although its checksum holds."""
    try:
        block.columns()
    except Damage as damage:
        return damage
    return None


def _row(path: str, problem: Problem) -> dict[str, Any]:
    hit = problem.hit
    return {
        "path": path,
        "offset": problem.offset,
        "length": problem.end - problem.offset,
        "what": problem.what,
        "first_epoch": hit.first_epoch if hit else None,
        "last_epoch": hit.last_epoch if hit else None,
        "entries_max": hit.entries_max if hit else None,
    }
