"""`warren bench amqp`: which rows there are, and how they come of the brokers' readings; docs/benchmarks.md says more.

    reading   a number by name, of one broker in one run               publish_100 of warren, first run: 510,000
    value     the middle one of Warren's readings
    reference the middle one of a peer's, or another reading of Warren's own
    ratio     the middle one of the ratios of each run, whose two readings were measured side by side (amqp_stage)

A row is called by its reading, and stands beside RabbitMQ's classic queue; `READING_beside_PEER` beside another. What
was not measured, as a broker is not installed or not wanted, is no reference: goals are missed then. If Warren itself
is not wanted, the values are those of the first broker that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tools.bench.amqp.backlog import BACKLOG_READINGS
from tools.bench.amqp.run import AmqpRun
from tools.bench.amqp.stage import measured_side_by_side
from tools.bench.amqp.subjects import CLASSIC, Subject
from tools.bench.measurement import Figure
from tools.bench.run import Figures
from tools.bench.suite import Suite
from warren.base.errors import Refused

Readings = dict[str, list[float]]  # by name: one of each run
AGAINST_ALL = (CLASSIC, "quorum", "redis", "redis_everysec", "nats")
AGAINST_RABBITMQ = (CLASSIC, "quorum")
RATE, MILLISECONDS, MICROSECONDS = "messages/s", "ms", "µs"


@dataclass(frozen=True, slots=True)
class AmqpRow:
    name: str
    reading: str
    unit: str
    peer: str = ""  # whose reading of the same name is the reference …
    own: str = ""  # … or which other of the same broker


def _beside(reading: str, unit: str, peers: tuple[str, ...]) -> Iterator[AmqpRow]:
    for peer in peers:
        yield AmqpRow(reading if peer == CLASSIC else f"{reading}_beside_{peer}", reading, unit, peer)


def _single(which: str) -> Iterator[AmqpRow]:
    """Beside the bare disk, then beside all others."""
    reading = f"one_in_flight_{which}"
    yield AmqpRow(reading, reading, MICROSECONDS, own=f"bare_sync_{which}")
    for peer in AGAINST_ALL:
        yield AmqpRow(f"{reading}_beside_{peer}", reading, MICROSECONDS, peer)


ROWS: tuple[AmqpRow, ...] = (
    AmqpRow("bare_sync_p50", "bare_sync_p50", MICROSECONDS),
    AmqpRow("bare_sync_p99", "bare_sync_p99", MICROSECONDS),
    AmqpRow("bare_write", "bare_write", "MB/s"),
    *(row for size in ("100", "1k", "64k") for row in _beside(f"publish_{size}", RATE, AGAINST_ALL)),
    AmqpRow("publish_limited", "publish_limited", RATE, own="publish_100"),
    AmqpRow("publish_held", "publish_held", RATE, own="publish_100"),
    *_beside("many_connections", RATE, AGAINST_RABBITMQ),
    *_beside("many_connections_p99", MICROSECONDS, AGAINST_RABBITMQ),
    *_beside("drain", RATE, AGAINST_ALL),
    *_beside("end_to_end", RATE, AGAINST_RABBITMQ),
    *_beside("end_to_end_p50", MILLISECONDS, AGAINST_RABBITMQ),
    *_beside("end_to_end_p99", MILLISECONDS, AGAINST_RABBITMQ),
    *_beside("paced_p50", MILLISECONDS, AGAINST_RABBITMQ),
    *_beside("paced_p99", MILLISECONDS, AGAINST_RABBITMQ),
    *_single("p50"),
    *_single("p99"),
    *_beside("backlog_fill", "s", AGAINST_RABBITMQ),
    *_beside("backlog_memory", "MB", AGAINST_RABBITMQ),
    *_beside("backlog_restart", "s", AGAINST_RABBITMQ),
)


def amqp_rows(run: AmqpRun) -> Figures:
    readings = _measure(run)
    if run.focus not in readings:
        raise Refused(f"{run.focus} could not be measured", run.absent.get(run.focus, "name rows that there are"))
    ours = readings[run.focus]
    for row in ROWS:
        if row.name in run.wanted:
            is_own_peer = row.peer == run.focus
            beside = ours.get(row.own) if row.own else readings.get(row.peer, {}).get(row.reading)
            yield _figure(run, row, ours[row.reading], None if is_own_peer else beside)


def _figure(run: AmqpRun, row: AmqpRow, values: list[float], beside: list[float] | None) -> Figure:
    if beside is None:
        return Figure(row.name, median(values), _unit(run, row))
    ratios = tuple(value / reference for value, reference in zip(values, beside, strict=True) if reference)
    return Figure(row.name, median(values), _unit(run, row), median(beside), ratios)


AMQP: Suite[AmqpRun] = Suite({amqp_rows: tuple(row.name for row in ROWS)})


def _measure(run: AmqpRun) -> dict[str, Readings]:
    """All readings that the rows need, by broker."""
    needed = {name: readings_needed(run, subject) for name, subject in run.subjects.items()}
    found: dict[str, Readings] = {}
    for number in range(run.runs):
        for name, readings in measured_side_by_side(run, needed, f"run {number + 1} of {run.runs}").items():
            for reading, value in readings.items():
                found.setdefault(name, {}).setdefault(reading, []).append(value)
    return found


def readings_needed(run: AmqpRun, subject: Subject) -> set[str]:
    """Of the broker that is measured every reading of the rows that are wanted; of a peer what stands beside it."""
    rows = [row for row in ROWS if row.name in run.wanted]
    if subject.name == run.focus:
        return {reading for row in rows for reading in (row.reading, row.own)}
    return {row.reading for row in rows if row.peer == subject.name}


def _unit(run: AmqpRun, row: AmqpRow) -> str:
    is_scaled = row.reading in BACKLOG_READINGS and run.peer_factor != 1
    return f"{row.unit} (peer: {run.peer_backlog:,} × {run.peer_factor:g})" if is_scaled else row.unit
