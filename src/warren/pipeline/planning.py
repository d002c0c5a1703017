"""Planning a read on the driver: which epochs, which files, split into tasks that executors run independently.

    open (manifest, witness) ─▶ epochs ─▶ files and parts ─▶ pin ─▶ tasks
          ▲                                                  │
          └────────── a purge came first: plan again ────────┘

Planning reads block headers only (`log/read/parts`); tasks check every block they read. A pin that is not renewed
lapses: a dead reader does not hold files for long, and one that was too slow gets "gone, horizon is H".

The pin of the plan holds the files for tasks that have not started. It is shared by all tasks of a batch read:

    driver      share        pins/<id>.json of all files, and beside it pins/<id>.parts: a zero byte for each task
    executors   shared_pin   renew every third of LINGER_SECONDS while the task runs; at its end write 1 to its byte;
                             the task that then reads only ones is the last, and releases the pin

Spark plans a batch read in a process that ends before the first task starts, and has no callback for the end of a job:
the driver cannot release the pin, so the tasks do. The pin holds `pinSeconds` until the first task starts, and after
that LINGER_SECONDS beyond the last renewal: if tasks failed or were never run (`limit`), it lapses.

Invariants
* Nothing beyond the durable witness is in a plan; no entry is in two tasks.
* A task takes its own pin on the files it reads (pipeline/tasks), renews it while it runs and releases it at its end.
  No read depends on the shared pin. A lost write to the byte of a task costs LINGER_SECONDS and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from os import getpid
from typing import Any

from warren.base.errors import Damage, Gone, NotFound, Refused, WarrenError
from warren.base.ids import Epoch, FileNumber
from warren.base.threads import repeatedly
from warren.files.environment import Environment
from warren.log.checkpoint import choose_files
from warren.log.compaction.compaction import has_key_values
from warren.log.file_record import FileKind, FileRecord, FileState
from warren.log.log_files import open_by_name
from warren.log.read.parts import Border, FilePart, cut_into_parts, epoch_sizes, last_within
from warren.log.read.read_only import ReadOnlyLog, epoch_at_time, open_for_reading
from warren.log.retention import Pin, Pins, check_not_gone
from warren.pipeline.options import ENTRIES_PER_BUCKET, ReadOptions
from warren.pipeline.schema import TableView
from warren.snapshot.database import log_directory

TRIES = 5
_TWO_BUCKETS_FROM = 200_000  # entries; below it a second task costs more than it saves
_ENTRY_BYTES_GUESSED = 64


@dataclass(frozen=True, slots=True)
class Task:
    """What one executor does: a view of some parts of the log, over a range of epochs."""

    directory: str
    view: TableView
    parts: tuple[FilePart, ...]
    first: Epoch
    last: Epoch
    skips_damage: bool
    pin_seconds: float
    bucket: int = 0
    buckets: int = 1
    plan_pin: str = ""  # id of the pin shared by the tasks of a batch read …
    part: int = 0  # … and the number of this task among them
    shows_credentials: bool = False

    @property
    def numbers(self) -> list[FileNumber]:
        return [part.record.number for part in self.parts]

    def to_json(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Task:
        parts = tuple(FilePart.from_json(part) for part in raw["parts"])
        return cls(**{**raw, "view": TableView(raw["view"]), "parts": parts})


@dataclass(frozen=True, slots=True)
class Plan:
    tasks: list[Task]
    pin: Pin | None


class Planner:
    def __init__(self, options: ReadOptions, environment: Environment | None = None) -> None:
        self.environment = environment or Environment.real()
        self.options = replace(options, path=log_directory(self.environment.files, options.path))
        self.pins = pins_of(self.environment, self.options.path)
        self.borders: dict[FileNumber, Border] = {}  # a stream resumes where its last plan ended

    def open(self) -> ReadOnlyLog:
        return open_for_reading(self.environment.files, self.options.path)

    def plan(self) -> Plan:
        """The tasks of a batch read of the options' view."""
        make = {TableView.ENTRIES: self._entries, TableView.KV: self.tasks_of_state, TableView.DAMAGE: self._damage}[
            self.options.view
        ]
        return self.pinned(make)

    def pinned(self, make: Callable[[ReadOnlyLog], list[Task]]) -> Plan:
        """Plan, then pin the planned files; plan again if a purge came between."""
        for left in reversed(range(TRIES)):
            try:
                tasks = make(self.open())  # reads files that are not pinned yet
                if not self.options.pin_seconds or not tasks:
                    return Plan(tasks, None)
                numbers = sorted({number for task in tasks for number in task.numbers})
                return Plan(tasks, take_pin(self.pins, "plan", self.options.pin_seconds, numbers))
            except Gone:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def last_epoch(self, log: ReadOnlyLog) -> Epoch | None:
        """The last epoch requested; None: the newest one."""
        options = self.options
        if options.as_of_ns is not None:
            return epoch_at_time(self.environment.files, options.path, log.state, log.durable, options.as_of_ns)
        wanted = options.as_of_epoch if options.as_of_epoch is not None else options.to_epoch
        if wanted is not None and wanted > log.durable:
            raise Refused(f"epoch {wanted} is not durable", f"the newest is {log.durable}")
        return wanted

    def tasks_between(self, log: ReadOnlyLog, first: Epoch, last: Epoch) -> list[Task]:
        """The raw log of these epochs, a task for each part of a file."""
        records = [record for record in log.records() if record.purpose is FileKind.LOG]
        parts = [part for record in records for part in self._parts(log, record, first, last)]
        return [self._task(TableView.ENTRIES, (part,), first, last) for part in parts]

    def tasks_of_state(self, log: ReadOnlyLog) -> list[Task]:
        """The requested state: every task reads all files and keeps the keys of its own bucket."""
        wanted = self.last_epoch(log)
        epoch = _newest(log) if wanted is None else wanted
        parts = tuple(_whole(log, record) for record in _files_of_state(log, epoch))
        if not parts:
            return []
        buckets = self.options.buckets or _bucket_count(parts)
        return [self._task(TableView.KV, parts, Epoch(0), epoch, number, buckets) for number in range(buckets)]

    def epoch_within(self, log: ReadOnlyLog, after: Epoch, bytes_max: int) -> Epoch:
        """The last epoch such that the epochs after `after` have at most `bytes_max` bytes; at least one epoch."""
        sizes: dict[Epoch, int] = {}
        for record in log.records():
            if record.purpose is not FileKind.LOG or (record.state is FileState.SEALED and record.last_epoch <= after):
                continue
            view, _ = open_by_name(log.files, log.directory, record).map()
            border = self.borders.get(record.number, Border())
            border = border if border.epoch <= after else Border()
            for epoch, size in epoch_sizes(view, _whole(log, record), border, after, bytes_max).items():
                sizes[epoch] = sizes.get(epoch, 0) + size
        return last_within(sizes, bytes_max, log.durable)

    def _entries(self, log: ReadOnlyLog) -> list[Task]:
        first, last = self._range(log)
        first, last = max(first, self.options.only_from), min(last, self.options.only_to)
        return self.tasks_between(log, first, last) if first <= last else []

    def _range(self, log: ReadOnlyLog) -> tuple[Epoch, Epoch]:
        wanted = self.last_epoch(log)
        check_not_gone(log.state, wanted, ())
        first = self.options.from_epoch
        if first is None:
            first = Epoch(log.state.horizon + 1)
        first = Epoch(max(first, 1))
        check_not_gone(log.state, first, ())
        return first, log.durable if wanted is None else wanted

    def _parts(self, log: ReadOnlyLog, record: FileRecord, first: Epoch, last: Epoch) -> list[FilePart]:
        if record.state is FileState.SEALED and (record.last_epoch < first or record.first_epoch > last):
            return []
        whole = _whole(log, record)
        try:
            view, path = open_by_name(log.files, log.directory, record).map()
        except Gone:
            raise
        except (Damage, Refused):
            if self.options.skips_damage or self.options.view is TableView.DAMAGE:
                return [whole]  # the task reports the damage
            raise
        border = self.borders.get(record.number, Border())
        if border.epoch >= first:
            border = Border()
        parts, border = cut_into_parts(view, path, whole, first, last, self.options.partition_bytes, border)
        self.borders[record.number] = border
        return parts

    def _damage(self, log: ReadOnlyLog) -> list[Task]:
        first, last = self._range(log)
        parts = [part for task in self.tasks_between(log, first, last) for part in task.parts]
        parts += [_whole(log, record) for record in log.records() if record.purpose is FileKind.COMPACTED]
        return [self._task(TableView.DAMAGE, (part,), first, last) for part in parts]

    def _task(
        self, view: TableView, parts: tuple[FilePart, ...], first: Epoch, last: Epoch, bucket: int = 0, buckets: int = 1
    ) -> Task:
        options = self.options
        return Task(
            options.path,
            view,
            parts,
            first,
            last,
            options.skips_damage,
            options.pin_seconds,
            bucket,
            buckets,
            shows_credentials=options.shows_credentials,
        )


def pins_of(environment: Environment, directory: str) -> Pins:
    return Pins(environment.files, directory, environment.clock, environment.rng)


def take_pin(pins: Pins, who: str, seconds: float, numbers: list[FileNumber]) -> Pin:
    try:
        return pins.take(f"spark {who}, process {getpid()}", seconds, numbers=numbers)[0]
    except Gone:
        raise
    except Refused as error:
        raise Refused(
            f"no pin could be taken: {error.what}", "for a copy that no process purges: pinSeconds=0"
        ) from error


def _whole(log: ReadOnlyLog, record: FileRecord) -> FilePart:
    return FilePart(record, log.durable, log.witnessed(record), entries=record.entries)


def _newest(log: ReadOnlyLog) -> Epoch:
    """The newest epoch known to be durable: the last one of a sealed file may be newer than the witness read before."""
    return Epoch(max([log.durable, *(record.last_epoch for record in log.state.of_state(FileState.SEALED))]))


def _files_of_state(log: ReadOnlyLog, epoch: Epoch) -> list[FileRecord]:
    """The compacted files, and the log files after them that are not among their sources, active ones included."""
    chosen = choose_files(log.state, epoch)
    bases = [record for record in chosen if record.purpose is FileKind.COMPACTED]
    within = {number for base in bases for number in base.sources}
    logs = [record for record in chosen if record.purpose is FileKind.LOG and record.number not in within]
    return [*bases, *filter(has_key_values, logs), *log.state.of_state(FileState.ACTIVE)]


def _bucket_count(parts: tuple[FilePart, ...]) -> int:
    entries = sum(part.entries or part.size_bytes // _ENTRY_BYTES_GUESSED for part in parts)
    return max(-(-entries // ENTRIES_PER_BUCKET), 2 if entries >= _TWO_BUCKETS_FROM else 1)


LINGER_SECONDS = 60.0
_DONE = b"\1"
_log = logging.getLogger("warren.pipeline")


def share(environment: Environment, plan: Plan) -> list[Task]:
    """The tasks of a plan, sharing its pin: the last one releases it."""
    if plan.pin is None:
        return plan.tasks
    pins = pins_of(environment, plan.tasks[0].directory)
    try:
        file = environment.files.create(pins.parts_path(plan.pin.id))
        try:
            file.write_at(0, [bytes(len(plan.tasks))])
        finally:
            file.close()
    except BaseException:
        pins.release(plan.pin)
        raise
    return [replace(task, plan_pin=plan.pin.id, part=part) for part, task in enumerate(plan.tasks)]


@contextmanager
def shared_pin(environment: Environment, task: Task) -> Iterator[None]:
    """Renew the plan's pin while the body runs. If the body raises, the pin lapses later: Spark may retry the task."""
    if not task.plan_pin:
        yield
        return
    pins, seconds = pins_of(environment, task.directory), min(task.pin_seconds, LINGER_SECONDS)

    def renew() -> None:
        try:
            _renew(pins, task.plan_pin, seconds)
        except WarrenError as error:  # later tasks take their own pins, and get `Gone` if they are too late
            _log.warning("plan pin not renewed: %s", error.what)

    renew()
    try:
        with repeatedly(environment.threads, "warren-plan-pin", seconds / 3, renew):
            yield
    except GeneratorExit:  # Spark needs no more rows
        _end(environment, pins, task)
        raise
    _end(environment, pins, task)


def _renew(pins: Pins, identity: str, seconds: float) -> None:
    pin = pins.find(identity)
    if pin is None:
        return  # another run of the same plan has released it
    if not seconds * 2 / 3 <= pins.seconds_left(pin) <= seconds:  # else another task has just renewed it
        pins.renew(pin, seconds)


def _end(environment: Environment, pins: Pins, task: Task) -> None:
    with suppress(NotFound):  # released, or lapsed and removed
        file = environment.files.open(pins.parts_path(task.plan_pin), writable=True)
        try:
            file.write_at(task.part, [_DONE])
            ended = file.read_at(0, file.size())
        finally:
            file.close()
        if ended == _DONE * len(ended):
            pins.revoke(task.plan_pin)
