"""`warren bench …`: rows measured beside their references in the same run, and compared with tools/bench/goals.toml.

warren bench log          the log store, beside SQLite and the bare disk
warren bench pipeline     reading and compacting on Spark, beside the JVM's own group-by
warren bench snapshot     the safe snapshot store: writing with reflection and without, reading, start-up, memory, disk
warren bench queue        queues, beside SQLite by hand, persist-queue, litequeue, diskcache, and our own kept in SQL
warren bench amqp         the broker over AMQP, beside RabbitMQ, Redis Streams and NATS
warren bench reflection   the ways in which entries reach that store, each alone
"""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.output import AsJson, Bar, print_json, print_line, table

if TYPE_CHECKING:
    from tools.bench.measurement import Measurement

bench = typer.Typer(name="bench", help="Measure Warren against its goals.", no_args_is_help=True)

Entries = Annotated[int, typer.Option("--entries", min=1000, help="How many entries to write.")]
Home = Annotated[
    Path | None,
    typer.Option("--directory", help="Measure the disk of this directory, not the present one's.", show_default=False),
]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this row; may be repeated.")]


@bench.command("log")
def log(as_json: AsJson = False, entries: Entries = 5_000_000, directory: Home = None, only: Only = None) -> None:
    """Measure the log store. Writes to a temporary directory, and removes it."""
    from tools.bench.goals import goals_of
    from tools.bench.log.rows import LOG
    from tools.bench.run import run_in

    wanted = LOG.check(only or ())
    with ProgressNarrator() as narrator, run_in(directory or Path.cwd(), entries, narrator) as run:
        measurements = LOG.measure(run, goals_of("log"), wanted)
    _print("warren bench log", measurements, as_json)


@bench.command("pipeline")
def pipeline(as_json: AsJson = False, entries: Entries = 5_000_000, directory: Home = None, only: Only = None) -> None:
    """Measure the pipeline on Spark. Writes to a temporary directory, and removes it."""
    from tools.bench.goals import goals_of
    from tools.bench.pipeline.rows import PIPELINE
    from tools.bench.pipeline.run import ROOM_BYTES_PER_ENTRY, spark_run
    from tools.bench.run import run_in
    from warren.pipeline.session import require_pyspark

    require_pyspark()
    wanted = PIPELINE.check(only or ())
    home = directory or Path.cwd()
    with (
        ProgressNarrator() as narrator,
        run_in(home, entries, narrator, ROOM_BYTES_PER_ENTRY) as run,
        spark_run(run) as on_spark,
    ):
        measurements = PIPELINE.measure(on_spark, goals_of("pipeline"), wanted)
    _print("warren bench pipeline", measurements, as_json)


@bench.command("snapshot")
def snapshot(
    as_json: AsJson = False,
    entries: Entries = 1_000_000,
    directory: Home = None,
    only: Only = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw start-up, memory and disk by number of keys into this file.", dir_okay=False),
    ] = None,
) -> None:
    """Measure the safe snapshot store. Writes to a temporary directory, and removes it."""
    from tools.bench.goals import goals_of
    from tools.bench.run import run_in
    from tools.bench.snapshot.plot import draw, require_matplotlib
    from tools.bench.snapshot.rows import ROOM_BYTES_PER_ENTRY, snapshot_suite

    suite = snapshot_suite(entries)
    wanted = suite.check(only or ())
    if plot is not None:
        require_matplotlib()
    home = directory or Path.cwd()
    with ProgressNarrator() as narrator, run_in(home, entries, narrator, ROOM_BYTES_PER_ENTRY) as run:
        measurements = suite.measure(run, goals_of("snapshot"), wanted)
    if plot is not None:
        draw(measurements, plot)
    _print("warren bench snapshot", measurements, as_json)


@bench.command("queue")
def queue(
    as_json: AsJson = False,
    messages: Annotated[int, typer.Option("--messages", min=1000, help="How long the backlog is.")] = 1_000_000,
    directory: Home = None,
    only: Only = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw start-up and memory by length of backlog into this file.", dir_okay=False),
    ] = None,
) -> None:
    """Measure queues beside others. Writes to a temporary directory, and removes it."""
    from tools.bench.goals import goals_of
    from tools.bench.queue.peers import require_peers
    from tools.bench.queue.plot import draw
    from tools.bench.queue.rows import ROOM_BYTES_PER_MESSAGE, queue_suite
    from tools.bench.run import run_in
    from tools.bench.snapshot.plot import require_matplotlib

    suite = queue_suite(messages)
    wanted = suite.check(only or ())
    require_peers()
    if plot is not None:
        require_matplotlib()
    home = directory or Path.cwd()
    with ProgressNarrator() as narrator, run_in(home, messages, narrator, ROOM_BYTES_PER_MESSAGE, "messages") as run:
        measurements = suite.measure(run, goals_of("queue"), wanted)
    if plot is not None:
        draw(measurements, plot)
    _print("warren bench queue", measurements, as_json)


@bench.command("amqp")
def amqp(
    as_json: AsJson = False,
    directory: Home = None,
    rows: Annotated[list[str] | None, typer.Option("--rows", metavar="NAME", help="Only this row; repeatable.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="BROKER", help="Only this broker; may be repeated.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many runs; the middle ratio counts.")] = 3,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=0.1, help="Of each broker in a row of a run; 4 if not given.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A little of everything, once: does it run at all?")] = False,
    backlog: Annotated[int, typer.Option("--backlog", min=1000, help="How long Warren's backlog is.")] = 5_000_000,
    peer_backlog: Annotated[
        int, typer.Option("--peer-backlog", min=1000, help="How long a peer's is; its figures are scaled.")
    ] = 300_000,
) -> None:
    """Measure the broker over AMQP beside others, each started privately. Leaves nothing behind."""
    from dataclasses import replace

    from tools.bench.amqp.rows import AMQP
    from tools.bench.amqp.run import QUICK, QUICK_BACKLOG, RunSize, amqp_run, chosen
    from tools.bench.goals import goals_of

    wanted, subjects = AMQP.check(rows or ()) or set(AMQP.rows), chosen(only or ())
    lengths = QUICK_BACKLOG if quick else (backlog, peer_backlog)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: suspended brokers would stay otherwise
    effort = QUICK if quick else RunSize()
    effort = effort if seconds is None else replace(effort, seconds=seconds)
    with (
        ProgressNarrator() as narrator,
        amqp_run(directory or Path.cwd(), narrator, wanted, subjects, lengths, 1 if quick else runs, effort) as run,
    ):
        measurements = AMQP.measure(run, goals_of("amqp"), wanted)
    for name, why in run.absent.items():
        sys.stderr.write(f"{name} is left out: {why}\n")
    _print("warren bench amqp", measurements, as_json)


@bench.command("reflection")
def reflection(
    as_json: AsJson = False, entries: Entries = 1_000_000, directory: Home = None, only: Only = None
) -> None:
    """Measure each way of reflection separately. Writes to a temporary directory, and removes it."""
    from tools.bench.goals import goals_of
    from tools.bench.reflection.rows import REFLECTION
    from tools.bench.run import run_in

    wanted = REFLECTION.check(only or ())
    with ProgressNarrator() as narrator, run_in(directory or Path.cwd(), entries, narrator) as run:
        measurements = REFLECTION.measure(run, goals_of("reflection"), wanted)
    _print("warren bench reflection", measurements, as_json)


class ProgressNarrator:
    """Reports on stderr which row is being measured, its progress, and its result."""

    def __init__(self) -> None:
        self._bars = ExitStack()
        self._bar: Bar | None = None

    def __enter__(self) -> ProgressNarrator:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._bars.close()

    def began(self, row: str) -> None:
        self._bars.close()
        self._bar = self._bars.enter_context(Bar(row, 100, "%"))

    def reached(self, share: float) -> None:
        if self._bar is not None:
            self._bar.reach(round(share * 100))

    def measured(self, measurement: Measurement) -> None:
        self._bars.close()
        self._bar = None
        sys.stderr.write(f"{measurement.name}: {_value(measurement)}\n")


def _print(title: str, measurements: list[Measurement], as_json: bool) -> None:
    from tools.bench.measurement import as_object, shown

    if as_json:
        print_json(as_object(measurements))
        return
    rows = [(m.name, _value(m), shown(m.reference), _ratio(m), m.goal or "–", _verdict(m)) for m in measurements]
    table(title, ("row", "value", "reference", "ratio", "goal", "holds"), rows)
    missed = [m.name for m in measurements if not m.holds]
    print_line(f"missed: {', '.join(missed)}" if missed else "every goal holds")


def _value(measurement: Measurement) -> str:
    from tools.bench.measurement import shown

    return f"{shown(measurement.value)} {measurement.unit}"


def _ratio(measurement: Measurement) -> str:
    from tools.bench.measurement import shown

    apart = measurement.ratio_range
    return shown(measurement.ratio) + (f" ({shown(apart[0])} … {shown(apart[1])})" if apart else "")


def _verdict(measurement: Measurement) -> str:
    if measurement.goal is None:
        return ""
    return "yes" if measurement.holds else "NO"
