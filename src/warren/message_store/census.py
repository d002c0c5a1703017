"""The census of a file: who in it is alive.

    records ──▶ units, some hundred at a time ──▶ judge ──▶ live bytes, exactly

A record counts if its unit is alive and lies here now: one that the collector has copied elsewhere is garbage here, and
a copy whose move never became durable is garbage as well. Of a unit the bytes of those messages count that are alive.

Always true: memory is for a few hundred units, however many a file has. Whoever asks has made sure that the file is
settled: every run that names something in it is durable, or was never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from warren.base.ids import FileNumber, Lsn
from warren.message_store.format import RecordKind, decode_key
from warren.message_store.heap import BodyFiles, FoundRecord
from warren.message_store.liveness import LiveBodies, LivenessCheck, LivenessQuestion
from warren.message_store.units import flags, of_messages

BATCH_RECORDS = 256


class JudgedFiles(NamedTuple):
    """One record, and what is alive of its unit."""

    lsn: Lsn
    unit: Lsn
    is_start: bool  # of its unit, or of a copy of it
    size_bytes: int
    live_bytes: int
    alive: LiveBodies | None  # None: nothing of it, or not here


class LivenessScan(NamedTuple):
    total_bytes: int  # of contents
    live_bytes: int
    earliest: Lsn | None  # the first record that is alive


def take_census(heap: BodyFiles, file: FileNumber, judge: LivenessCheck) -> LivenessScan:
    total_bytes = live_bytes = 0
    earliest: Lsn | None = None
    for judged in judged_records(heap, file, judge):
        for each in judged:
            total_bytes += each.size_bytes
            live_bytes += each.live_bytes
            if earliest is None and each.alive is not None:
                earliest = each.lsn
    return LivenessScan(total_bytes, live_bytes, earliest)


def judged_records(heap: BodyFiles, file: FileNumber, judge: LivenessCheck) -> Iterator[list[JudgedFiles]]:
    found = heap.records(file)
    while records := list(islice(found, BATCH_RECORDS)):
        keys = [decode_key(record.key) for record in records]
        units = [key.unit or record.place.lsn for key, record in zip(keys, records, strict=True)]
        asked = [LivenessQuestion(unit, key.holders) for unit, key in zip(units, keys, strict=True)]
        answers = judge.judge(asked)
        yield [
            _judged(record, unit, key.kind is RecordKind.START, alive)
            for record, unit, key, alive in zip(records, units, keys, answers, strict=True)
        ]


def _judged(record: FoundRecord, unit: Lsn, is_start: bool, alive: LiveBodies | None) -> JudgedFiles:
    here = alive if alive is not None and record.place in alive.located.unit.places else None
    size_bytes = record.size_bytes
    live_bytes = 0 if here is None else _live_bytes(here, size_bytes)
    return JudgedFiles(record.place.lsn, unit, is_start, size_bytes, live_bytes, here)


def _live_bytes(alive: LiveBodies, size_bytes: int) -> int:
    """What of a record is alive: all of a chunk, of joined contents those that are wanted."""
    unit = alive.located.unit
    if alive.sizes is None or alive.wanted == unit.kept:
        return size_bytes
    sizes = of_messages(alive.sizes, unit.first, unit.first + unit.messages)
    return int(sizes[flags(alive.wanted, unit.messages)].sum())
