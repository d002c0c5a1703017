"""`warren bench amqp` on few messages: it measures every row beside its peers, says so in the agreed form, and cleans
up. RabbitMQ is one that all tests share; where it does not matter who is measured, it stands in Warren's place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.bench.test_bench_log import FIELDS, Silent
from tools.bench.amqp import shapes as amqp_shapes
from tools.bench.amqp.backlog import BACKLOG_READINGS, _scaled
from tools.bench.amqp.rows import AMQP, ROWS
from tools.bench.amqp.run import QUICK, QUICK_BACKLOG, amqp_run, chosen
from tools.bench.amqp.shapes import AMQP_SHAPES, ROUNDS
from tools.bench.amqp.stream_shapes import OTHER_SHAPES
from tools.bench.amqp.subjects import CLASSIC, OURS, SUBJECTS, Subject
from tools.bench.goals import goals_of
from tools.bench.measurement import Measurement
from tools.bench.peers import NotInstalled, Peer
from warren.base.errors import Damage, Refused

ONE_SLICE = replace(QUICK, slices=1, seconds=0.2)


@pytest.fixture
def lent(rabbitmq: Peer) -> Callable[[str], Subject]:
    """RabbitMQ, which runs already and stays, under some name."""

    @contextmanager
    def start(directory: Path) -> Iterator[Peer]:
        yield rabbitmq
        rabbitmq.resume()

    return lambda name: Subject(name, start)


def not_there(directory: Path) -> Peer:
    raise NotInstalled("it is not installed")


def measured(directory: Path, subjects: Mapping[str, Subject], *rows: str) -> dict[str, Measurement]:
    wanted = set(rows or AMQP.rows)
    with amqp_run(directory, Silent(), wanted, subjects, QUICK_BACKLOG, 1, ONE_SLICE) as run:
        made = AMQP.measure(run, goals_of("amqp"), wanted)
    assert not list(directory.iterdir()), "it leaves nothing behind"
    return {row.name: row for row in made}


@pytest.mark.slow
def test_every_row_is_measured_beside_rabbitmq(tmp_path: Path, lent: Callable[[str], Subject]) -> None:
    rows = measured(tmp_path, {CLASSIC: lent(CLASSIC), OURS: SUBJECTS[OURS]})
    assert tuple(rows) == AMQP.rows
    assert all(row.value > 0 for row in rows.values())
    beside = {row.name for row in ROWS if row.peer == CLASSIC or row.own}
    assert {name for name, row in rows.items() if row.ratio is not None} == beside
    assert {name: str(goal) for name, goal in goals_of("amqp").items()} == {
        name: row.goal for name, row in rows.items() if row.goal is not None
    }
    assert rows["backlog_fill"].unit == "s (peer: 2,500 × 2)"
    assert not any(rows[f"publish_100_beside_{peer}"].holds for peer in ("quorum", "redis", "nats")), "they did not run"


@pytest.mark.slow
def test_brokers_that_speak_otherwise_stand_beside_the_rows_that_fit_them(
    tmp_path: Path, lent: Callable[[str], Subject]
) -> None:
    subjects = {name: subject for name, subject in SUBJECTS.items() if subject.speaks != "amqp"} | {OURS: lent(OURS)}
    names = [row.name for row in ROWS if row.peer in subjects and row.reading in ("publish_100", "drain")]
    rows = measured(tmp_path, subjects, *names)
    assert len(names) == 6 and all(row.reference for row in rows.values())


@pytest.mark.slow
def test_without_its_peer_a_goal_is_missed(tmp_path: Path, lent: Callable[[str], Subject]) -> None:
    subjects = {CLASSIC: Subject(CLASSIC, not_there), OURS: lent(OURS)}
    wanted = {"publish_100", "bare_write"}
    with amqp_run(tmp_path, Silent(), wanted, subjects, QUICK_BACKLOG, 1, ONE_SLICE) as run:
        rows = {row.name: row for row in AMQP.measure(run, goals_of("amqp"), wanted)}
    assert run.absent == {CLASSIC: "it is not installed"}
    assert rows["publish_100"].reference is None and not rows["publish_100"].holds
    assert rows["bare_write"].holds, "it has no goal"


def test_without_the_broker_that_is_measured_there_is_nothing_to_say(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="warren could not be measured"):
        measured(tmp_path, {OURS: Subject(OURS, not_there)}, "publish_100")


@pytest.mark.slow
def test_the_command_measures_one_broker_and_prints_one_object(tmp_path: Path) -> None:
    words = ["bench", "amqp", "--json", "--quick", "--only", OURS, "--rows", "drain", "--rows", "one_in_flight_p50"]
    command = [sys.executable, "-m", "warren.cli.main", *words, "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    drain, single = json.loads(done.stdout)["measurements"]
    assert set(drain) == FIELDS
    assert (drain["name"], drain["reference"], drain["holds"]) == ("drain", None, False)
    assert single["reference"] > 0, "the bare disk is no broker"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_queue_that_has_other_messages_than_were_confirmed_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lent: Callable[[str], Subject]
) -> None:
    monkeypatch.setattr(amqp_shapes, "generated", lambda order: {"confirmed": 1.0, "rate": 1.0})
    monkeypatch.setattr(amqp_shapes, "_DEPTH_SECONDS_MAX", 0.0)
    with pytest.raises(Damage, match="has 0 messages in a queue, 1 should be there"):
        measured(tmp_path, {OURS: lent(OURS)}, "publish_100")


def test_a_shorter_backlog_is_scaled_by_what_lies_above_an_empty_broker() -> None:
    assert _scaled(150, 100, 1) == 150
    assert _scaled(150, 100, 10) == 600
    assert _scaled(90, 100, 10) == 100


def test_every_goal_is_a_row_s_and_every_row_is_a_reading_s() -> None:
    assert goals_of("amqp") and not set(goals_of("amqp")) - set(AMQP.rows)
    shapes = {shape: readings for each in ROUNDS for shape, readings in each.items()}
    assert set(shapes) == set(AMQP_SHAPES) and set(OTHER_SHAPES) < set(shapes)
    readings = {name for names in shapes.values() for name in names} | set(BACKLOG_READINGS)
    assert {row.reading for row in ROWS} == readings
    assert {row.own for row in ROWS if row.own} <= readings
    assert {row.peer for row in ROWS if row.peer} | {OURS} == set(SUBJECTS)


def test_brokers_are_chosen_by_name() -> None:
    assert list(chosen(())) == list(SUBJECTS)
    assert list(chosen(("nats", "warren"))) == ["warren", "nats"]
    with pytest.raises(Refused, match="no broker kafka"):
        chosen(("kafka",))
    with pytest.raises(Refused, match="redis has not every row"):
        chosen(("redis",))
