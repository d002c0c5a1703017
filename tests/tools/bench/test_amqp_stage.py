"""Brokers are measured side by side: one at a time, the others held, there and back, and none outlives the run. Shapes
that take no time stand for the true ones, and Redis for every broker: it starts in a moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.tools.bench.test_bench_log import Silent
from tools.bench.amqp import stage
from tools.bench.amqp.rows import AMQP
from tools.bench.amqp.run import QUICK, QUICK_BACKLOG, Bench, amqp_run
from tools.bench.amqp.slices import Rate, Slice
from tools.bench.amqp.subjects import CLASSIC, OURS, Subject
from tools.bench.generators.order import BrokerFailed
from tools.bench.measurement import Measurement
from tools.bench.peers import Peer, _runs, start_redis
from warren.base.errors import Refused, WarrenError

Step = Callable[[Bench], Slice]


class Troupe:
    """Two brokers, and who of them is seen to run whenever one is measured."""

    def __init__(self) -> None:
        self.peers: dict[str, Peer] = {}
        self.pids: set[int] = set()
        self.seen: list[tuple[str, list[str]]] = []

    def subjects(self) -> dict[str, Subject]:
        return {name: Subject(name, self._starter(name)) for name in (CLASSIC, OURS)}

    def look(self, bench: Bench) -> None:
        running = [name for name, peer in self.peers.items() if any(map(_runs, peer.pids()))]
        self.seen.append((bench.subject.name, running))

    def all_ended(self) -> bool:
        return bool(self.pids) and not any(Path("/proc", str(pid)).exists() for pid in self.pids)

    def _starter(self, name: str) -> Callable[[Path], AbstractContextManager[Peer]]:
        def start(directory: Path) -> Peer:
            self.peers[name] = start_redis(directory)
            self.pids |= set(self.peers[name].pids())
            return self.peers[name]

        return start


def measured(directory: Path, troupe: Troupe, runs: int, *rows: str) -> dict[str, Measurement]:
    with amqp_run(directory, Silent(), rows, troupe.subjects(), QUICK_BACKLOG, runs, QUICK) as run:
        return {row.name: row for row in AMQP.measure(run, {}, set(rows))}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let these be the shapes."""
    return lambda **shapes: monkeypatch.setattr(stage, "AMQP_SHAPES", shapes)


def test_one_is_measured_while_the_others_are_held_there_and_back(tmp_path: Path, play: Callable[..., None]) -> None:
    troupe = Troupe()

    def drain(bench: Bench) -> Slice:
        troupe.look(bench)
        return {"drain": Rate(1, 1)}

    play(drain=drain)
    measured(tmp_path, troupe, 1, "drain")
    assert troupe.seen == [(name, [name]) for name in (CLASSIC, OURS, OURS, CLASSIC)]
    assert troupe.all_ended() and not list(tmp_path.iterdir())


def test_what_stands_beside_another_row_is_measured_in_the_same_round(
    tmp_path: Path, play: Callable[..., None]
) -> None:
    steps: list[tuple[str, str]] = []

    def shape(name: str) -> Step:
        def play_it(bench: Bench) -> Slice:
            steps.append((bench.subject.name, name))
            return {name: Rate(1, 1)}

        return play_it

    names = ("publish_100", "publish_limited", "publish_1k")
    play(**{name: shape(name) for name in names})
    measured(tmp_path, Troupe(), 1, *names)
    there = [(CLASSIC, "publish_100"), (OURS, "publish_100"), (OURS, "publish_limited")]
    small = [(CLASSIC, "publish_1k"), (OURS, "publish_1k")]
    assert steps == [*there, *there[::-1], *small, *small[::-1]]


def test_a_ratio_is_the_middle_one_of_the_ratios_within_each_run(tmp_path: Path, play: Callable[..., None]) -> None:
    """By run: Warren 30, 100, 40 beside 10, 100, 20, each of two slices."""
    parts = {OURS: iter([10, 50, 100, 100, 70, 10]), CLASSIC: iter([10, 10, 150, 50, 0, 40])}

    play(drain=lambda bench: {"drain": Rate(next(parts[bench.subject.name]), 1)})
    row = measured(tmp_path, Troupe(), 3, "drain")["drain"]
    assert (row.value, row.reference) == (40, 20)
    assert (row.ratio, row.ratio_range) == (2, (1, 3))


def test_the_ratio_is_not_that_of_the_medians(tmp_path: Path, play: Callable[..., None]) -> None:
    parts = {OURS: iter([1, 1, 8, 8, 6, 6]), CLASSIC: iter([1, 1, 2, 2, 6, 6])}
    play(drain=lambda bench: {"drain": Rate(next(parts[bench.subject.name]), 1)})
    row = measured(tmp_path, Troupe(), 3, "drain")["drain"]
    assert (row.value, row.reference, row.ratio) == (6, 2, 1)


@pytest.mark.parametrize(
    ("raised", "caught", "match"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
        (ConnectionResetError("gone"), BrokerFailed, "^warren, drain: gone$"),
        (Refused("no room", "make some"), BrokerFailed, "^warren, drain: no room\n  hint: make some"),
        (Refused("warren has too many"), Refused, "^warren has too many$"),
    ],
)
def test_whatever_ends_a_run_names_the_broker_and_leaves_no_process_held_or_not(
    tmp_path: Path,
    play: Callable[..., None],
    raised: BaseException,
    caught: type[BaseException],
    match: str,
) -> None:
    troupe = Troupe()

    def drain(bench: Bench) -> Slice:
        if bench.subject.name == OURS:
            raise raised
        return {"drain": Rate(1, 1)}

    play(drain=drain)
    with pytest.raises(caught, match=match):
        measured(tmp_path, troupe, 1, "drain")
    assert troupe.all_ended() and not list(tmp_path.iterdir())


def test_a_broker_that_died_while_it_was_held_is_named(tmp_path: Path, play: Callable[..., None]) -> None:
    troupe = Troupe()

    def drain(bench: Bench) -> Slice:
        os.kill(troupe.peers[OURS].pid, signal.SIGKILL)
        return {"drain": Rate(1, 1)}

    play(drain=drain)
    with pytest.raises(WarrenError, match="warren, drain: redis did not go on"):
        measured(tmp_path, troupe, 1, "drain")
