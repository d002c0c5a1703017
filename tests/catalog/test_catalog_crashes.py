"""The power is cut at every step of a scenario of the catalog: of the log, of the store, of SQL's commits.

    two clients declare, bind and delete ∥ rotation, flush, purge ─▶ stop ─▶ open, clear away leftovers, more of it

It is played once to count its steps, then once for each step at which the power goes. What is left of the disk is
judged three times (all, synced, reordered); SQL stands at any transaction that it ever committed, or at none. A state
that fails prints itself: `check_state(seed, step)` plays it again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.catalog.catalog_stage import CatalogCrashStage, check
from tests.snapshot.crash_stage import Open
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.ids import VhostId
from warren.catalog import bindings, exchanges, parameters, queues, vhosts
from warren.catalog.bindings import NewBinding
from warren.catalog.catalog import Catalog
from warren.catalog.queues import NewQueue
from warren.catalog.rebuild import remove_leftovers
from warren.catalog.rows import RowWriter
from warren.snapshot.database import Database
from warren.testing.memory_files import CrashModel

CHANGES = 4  # of each client in each life
SEED = 21
State = dict[str, frozenset[str]]  # a client's queues, and the keys each is bound by


@dataclass(slots=True)
class Client:
    """One client, and what must be there of it: `states[n]` behind its n-th change."""

    name: str
    states: list[State] = field(default_factory=lambda: [{}])
    acknowledged: int = 0

    def work(self, catalog: Catalog, here: VhostId, rng: random.Random) -> None:
        for _ in range(CHANGES):
            state = dict(self.states[-1])
            name = f"{self.name}{rng.randrange(3)}"
            if name not in state:
                keys = frozenset(rng.sample("abc", 2))
                state[name] = keys
                work = partial(_declare_and_bind, here, name, sorted(keys))
            elif rng.random() < 0.5:
                del state[name]
                work = partial(_delete, here, name)
            else:
                state[name] ^= {"d"}
                work = partial(_bind_or_unbind, here, name, "d")
            self.states.append(state)
            catalog.change(work)
            self.acknowledged += 1

    def judge(self, found: State) -> str:
        own = {name: keys for name, keys in found.items() if name.startswith(self.name)}
        allowed = self.states[self.acknowledged :]
        return "" if own in allowed else f"client {self.name}: {own} is none of {allowed}"


def _declare_and_bind(here: VhostId, name: str, keys: list[str], writer: RowWriter) -> None:
    """One of the clients writes its rows together, as an import of definitions does."""
    source = _topic(writer, here)
    for vhost_id in (here, None):
        parameters.put(writer, vhost_id, "policy", name, {"keys": keys})
    if name.startswith("b"):
        (queue,) = queues.create(writer, here, [NewQueue(name, True, False, {})])
        bindings.create(writer, here, [NewBinding(source, queue, key, {}) for key in keys])
        return
    queue = queues.declare(writer, here, name)
    for key in keys:
        bindings.bind(writer, source, queue, key)


def _delete(here: VhostId, name: str, writer: RowWriter) -> None:
    queue = queues.get(writer.connection, here, name)
    assert queue is not None
    queues.delete(writer, queue.id)
    assert all(parameters.clear(writer, vhost_id, "policy", name) for vhost_id in (here, None))


def _bind_or_unbind(here: VhostId, name: str, key: str, writer: RowWriter) -> None:
    queue, source = queues.get(writer.connection, here, name), _topic(writer, here)
    assert queue is not None
    if not bindings.unbind(writer, source, queue, key):
        bindings.bind(writer, source, queue, key)


def _topic(writer: RowWriter, here: VhostId) -> exchanges.ExchangeRow:
    source = exchanges.get(writer.connection, here, "amq.topic")
    assert source is not None
    return source


def contents_of(catalog: Catalog) -> State:
    with catalog.reading() as connection:
        keys: dict[int, set[str]] = {queue.id: set() for queue in queues.every(connection)}
        for binding in bindings.every(connection):
            assert binding.queue_id is not None
            keys[binding.queue_id].add(binding.routing_key)
        clients = {queue.name for queue in queues.every(connection)} - {"passing", "after"}
        for vhost_id in (None, *(vhost.id for vhost in vhosts.every(connection))):  # set and cleared with the queue
            assert {row.name for row in parameters.every(connection, vhost_id)} == clients
        return {queue.name: frozenset(keys[queue.id]) for queue in queues.every(connection)}


class Lives:
    """Two lives of one catalog, the first ended by a stop."""

    def __init__(self, seed: int, stage: CatalogCrashStage) -> None:
        self._seed = seed
        self._stage = stage
        self.clients = [Client("a"), Client("b")]

    def body(self, open_database: Open, threads: SteppedThreads) -> None:
        for life in range(2):
            database = open_database()
            catalog = self._stage.open_catalog(database, threads)
            here = catalog.change(lambda writer: vhosts.declare(writer, "/")).id
            catalog.change(remove_leftovers)
            catalog.change(lambda writer, here=here: queues.declare(writer, here, "passing", durable=False))  # type: ignore[misc]
            chances = [random.Random(f"{self._seed} {life} {client.name}") for client in self.clients]
            others = [
                threads.start(client.name, partial(client.work, catalog, here, rng))
                for client, rng in zip(self.clients, chances, strict=True)
            ]
            self._maintain(database)
            for other in others:
                other.join()
            if life == 0:
                catalog.close()
                database.close()

    def _maintain(self, database: Database) -> None:
        assert database.reflection is not None
        database.log.rotate()
        database.reflection.flush()
        database.log.purge()


def check_state(seed: int, step: int) -> list[str]:
    """Cut the power before one step, or half way through it; whatever is wrong in any model."""
    stage = CatalogCrashStage()
    lives = Lives(seed, stage)
    stage.play(seed, lives.body, cut_at=step, fraction=0.5 if step % 2 else None)
    wrong: list[str] = []
    for index, model in enumerate(CrashModel):
        try:
            after = stage.crashed(model, 3 * step + index)
            if (step + index) % 4 == 0:  # the start may be cut short, too: before SQL's commit, or anywhere else
                after.play(step, partial(open_and_no_more, after), cut_at=step % 41)
                after = after.crashed(model, step)
            check_restart(after, lives.clients, continues=(step + index) % 3 == 0)
        except Exception as error:
            wrong.append(f"seed {seed}, step {step}, {model.value}: {type(error).__name__}: {error}")
    return wrong


def open_and_no_more(stage: CatalogCrashStage, open_database: Open, threads: SteppedThreads) -> None:
    database = open_database()
    stage.open_catalog(database, threads)
    database.abandon()


def check_restart(stage: CatalogCrashStage, clients: list[Client], continues: bool) -> None:
    """Open on what is left, and judge it; then declare more, stop, and open once more."""

    def body(open_database: Open, threads: SteppedThreads) -> None:
        database = open_database()
        catalog = stage.open_catalog(database, threads)
        check(catalog, database)
        assert not catalog.problems, catalog.problems
        found = contents_of(catalog)
        wrong = [problem for client in clients if (problem := client.judge(found))]
        assert not wrong, wrong
        assert set(found) - {"passing"} == {name for name in found if name[0] in "ab" and len(name) == 2}
        if continues:
            here = catalog.change(lambda writer: vhosts.declare(writer, "/")).id
            catalog.change(lambda writer: queues.declare(writer, here, "after"))
            catalog.close()
            database.close()
            database = open_database()
            catalog = stage.open_catalog(database, threads)
            check(catalog, database)
            assert contents_of(catalog) == found | {"after": frozenset()}

    stage.play(1, body)


@pytest.mark.torture
def test_a_power_cut_at_any_step_loses_no_declaration_that_was_answered(capsys: pytest.CaptureFixture[str]) -> None:
    """C-21, X-02: log and catalog are equal, after any loss in SQL."""
    count = count_steps(SEED)
    wrong = [problem for step in range(count) for problem in check_state(SEED, step)]
    with capsys.disabled():
        print(f"\n  catalog: {3 * count} states, every step of {count}")
    assert not wrong, "\n".join(wrong)


def test_a_power_cut_at_some_steps_of_another_life_loses_no_declaration_that_was_answered() -> None:
    """C-21, X-02: the campaign above takes every step."""
    wrong = [problem for step in range(4, count_steps(SEED + 1), 6) for problem in check_state(SEED + 1, step)]
    assert not wrong, "\n".join(wrong)


def count_steps(seed: int) -> int:
    """Play it once, uncut, and see that everything that is to be cut short happens in it."""
    stage = CatalogCrashStage()
    lives = Lives(seed, stage)
    steps = stage.play(seed, lives.body)
    assert [client.acknowledged for client in lives.clients] == [2 * CHANGES] * 2
    assert sum(step.operation == "commit" for step in steps) >= 2 * CHANGES
    assert {step.operation for step in steps} >= {"flush", "remove", "rename", "apply", "commit"}
    return len(steps)
