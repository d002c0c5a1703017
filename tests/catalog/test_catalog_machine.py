"""The catalog against plain dicts: operations in any order, with any loss in SQL or on disk."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.catalog.catalog_stage import CatalogStage, check
from warren.base.errors import Refused
from warren.base.ids import VhostId
from warren.catalog import bindings, exchanges, queues, vhosts
from warren.catalog.rows import RowWriter
from warren.testing.fakes import SeededRandom
from warren.testing.memory_files import CrashModel

VHOSTS = st.sampled_from(["/", "shop"])
NAMES = st.sampled_from(["a", "b", "c"])
ARGUMENTS = st.sampled_from([{}, {"x": 1}, {"x": "1"}])
KEYS = st.sampled_from(["", "k"])
PREDECLARED = {name for name, _, _ in vhosts.PREDECLARED}


class Model:
    """What there is, by names."""

    def __init__(self) -> None:
        self.vhosts: dict[str, str] = {}  # description
        self.queues: dict[tuple[str, str], Any] = {}
        self.exchanges: dict[tuple[str, str], Any] = {}
        self.bindings: set[tuple[str, str, str, str, str]] = set()  # vhost, source, kind of target, target, key

    def copy(self) -> Model:
        other = Model()
        other.vhosts, other.queues, other.exchanges = dict(self.vhosts), dict(self.queues), dict(self.exchanges)
        other.bindings = set(self.bindings)
        return other

    def state(self) -> Any:
        return self.vhosts, self.queues, self.exchanges, self.bindings

    def drop(self, vhost: str, kind: str, name: str) -> None:
        self.bindings = {
            each
            for each in self.bindings
            if (each[0], *each[2:4]) != (vhost, kind, name) and (kind == "queue" or each[:2] != (vhost, name))
        }


class CatalogMachine(RuleBasedStateMachine):
    forgotten = 0  # how often, in all machines, SQL had less than the log when it was opened

    @initialize()
    def begin(self) -> None:
        self.stage = CatalogStage()
        self.catalog = self.stage.begin()
        self.model = Model()
        self.crashes = 0

    # -- changes -------------------------------------------------------------------------------------------------

    @rule(name=VHOSTS, description=st.sampled_from(["", "x"]))
    def declare_vhost(self, name: str, description: str) -> None:
        self.catalog.change(lambda writer: vhosts.declare(writer, name, description))
        self.model.vhosts.setdefault(name, description)

    @rule(name=VHOSTS, description=st.sampled_from(["y", "z"]))
    def describe_vhost(self, name: str, description: str) -> None:
        if name in self.model.vhosts:
            self.catalog.change(lambda writer: vhosts.describe(writer, vhost_id(writer, name), description))
            self.model.vhosts[name] = description

    @rule(name=VHOSTS)
    def delete_vhost(self, name: str) -> None:
        if name in self.model.vhosts:
            self.catalog.change(lambda writer: vhosts.delete(writer, vhost_id(writer, name)))
            model = self.model
            del model.vhosts[name]
            model.queues = {key: existing for key, existing in model.queues.items() if key[0] != name}
            model.exchanges = {key: existing for key, existing in model.exchanges.items() if key[0] != name}
            model.bindings = {each for each in model.bindings if each[0] != name}

    @rule(vhost=VHOSTS, name=NAMES, durable=st.booleans(), arguments=ARGUMENTS)
    def declare_queue(self, vhost: str, name: str, durable: bool, arguments: dict[str, Any]) -> None:
        if vhost in self.model.vhosts:
            existing = self.model.queues.setdefault((vhost, name), (durable, arguments))
            self._change(
                existing == (durable, arguments),
                lambda writer: queues.declare(
                    writer, vhost_id(writer, vhost), name, durable=durable, arguments=arguments
                ),
            )

    @rule(vhost=VHOSTS, name=NAMES, type_=st.sampled_from(["topic", "fanout"]))
    def declare_exchange(self, vhost: str, name: str, type_: str) -> None:
        if vhost in self.model.vhosts:
            existing = self.model.exchanges.setdefault((vhost, name), type_)
            self._change(
                existing == type_, lambda writer: exchanges.declare(writer, vhost_id(writer, vhost), name, type_)
            )

    @rule(vhost=VHOSTS, name=NAMES)
    def delete_queue(self, vhost: str, name: str) -> None:
        if self.model.queues.pop((vhost, name), None) is not None:
            self.catalog.change(lambda writer: queues.delete(writer, queue_of(writer, vhost, name).id))
            self.model.drop(vhost, "queue", name)

    @rule(vhost=VHOSTS, name=NAMES)
    def delete_exchange(self, vhost: str, name: str) -> None:
        if self.model.exchanges.pop((vhost, name), None) is not None:
            self.catalog.change(lambda writer: exchanges.delete(writer, exchange_of(writer, vhost, name).id))
            self.model.drop(vhost, "exchange", name)

    @rule(vhost=VHOSTS, source=NAMES, kind=st.sampled_from(["queue", "exchange"]), onto=NAMES, key=KEYS)
    def bind_or_unbind(self, vhost: str, source: str, kind: str, onto: str, key: str) -> None:
        targets = self.model.queues if kind == "queue" else self.model.exchanges
        if (vhost, source) in self.model.exchanges and (vhost, onto) in targets:
            named = (vhost, source, kind, onto, key)
            is_bound = named in self.model.bindings

            def work(writer: RowWriter) -> object:
                to = queue_of(writer, vhost, onto) if kind == "queue" else exchange_of(writer, vhost, onto)
                act = bindings.unbind if is_bound else bindings.bind
                return act(writer, exchange_of(writer, vhost, source), to, key)

            self.catalog.change(work)
            self.model.bindings ^= {named}

    @precondition(lambda self: "/" in self.model.vhosts)
    @rule(seed=st.integers(0, 1000), model=st.sampled_from(CrashModel))
    def lose_power_with_a_change_under_way(self, seed: int, model: CrashModel) -> None:
        """It is there whole, or it never was."""
        after = self.model.copy()
        after.queues.setdefault(("/", "late"), (True, {}))
        after.bindings.add(("/", "amq.topic", "queue", "late", "k"))

        def work(writer: RowWriter) -> None:
            queue = queues.declare(writer, vhost_id(writer, "/"), "late")
            bindings.bind(writer, exchange_of(writer, "/", "amq.topic"), queue, "k")

        self.catalog.submit(work)
        self._lose_power(seed, model)
        found = self._found()
        assert found in (self.model.state(), after.state())
        if found == after.state():
            self.model = after

    # -- what is forgotten ---------------------------------------------------------------------------------------

    @rule(transactions=st.integers(0, 12))
    def stop_and_let_sql_forget(self, transactions: int) -> None:
        self.stage.stop()
        self.stage.forgetful.lose(transactions)
        CatalogMachine.forgotten += transactions > 0
        self.catalog = self.stage.begin()
        assert not self.catalog.problems

    @rule(seed=st.integers(0, 1000), model=st.sampled_from(CrashModel))
    def lose_power(self, seed: int, model: CrashModel) -> None:
        self._lose_power(seed, model)

    @rule()
    def let_the_log_go(self) -> None:
        database = self.stage.database
        assert database.reflection is not None
        database.log.rotate()
        database.reflection.flush()
        database.log.purge()

    def _lose_power(self, seed: int, model: CrashModel) -> None:
        stage = self.stage
        stage.database.abandon()
        stage.crash(model, seed)
        stage.place = stage.forgetful.crash(SeededRandom(seed))
        self.catalog = stage.begin()
        assert not self.catalog.problems

    # -- what is always true -------------------------------------------------------------------------------------

    @invariant()
    def sql_log_and_model_are_equal(self) -> None:
        check(self.catalog, self.stage.database)
        assert self._found() == self.model.state()

    def teardown(self) -> None:
        self.stage.stop()

    def _change(self, is_same: bool, work: Any) -> None:
        try:
            self.catalog.change(work)
        except Refused:
            assert not is_same
        else:
            assert is_same

    def _found(self) -> Any:
        with self.catalog.reading() as connection:
            spaces = {vhost.id: vhost for vhost in vhosts.every(connection)}
            by_queue = {queue.id: queue for queue in queues.every(connection)}
            by_exchange = {each.id: each for each in exchanges.every(connection)}
            bound = bindings.every(connection)

        def named(each: bindings.BindingRow) -> tuple[str, str, str, str, str]:
            vhost, source = spaces[each.vhost_id].name, by_exchange[each.source_id].name
            if each.queue_id is not None:
                return vhost, source, "queue", by_queue[each.queue_id].name, each.routing_key
            assert each.exchange_id is not None
            return vhost, source, "exchange", by_exchange[each.exchange_id].name, each.routing_key

        return (
            {vhost.name: vhost.description for vhost in spaces.values()},
            {(spaces[q.vhost_id].name, q.name): (q.durable, q.arguments) for q in by_queue.values()},
            {(spaces[e.vhost_id].name, e.name): e.type for e in by_exchange.values() if e.name not in PREDECLARED},
            {named(each) for each in bound},
        )


def vhost_id(writer: RowWriter, name: str) -> VhostId:
    found = vhosts.get(writer.connection, name)
    assert found is not None
    return found.id


def queue_of(writer: RowWriter, vhost: str, name: str) -> queues.QueueRow:
    found = queues.get(writer.connection, vhost_id(writer, vhost), name)
    assert found is not None
    return found


def exchange_of(writer: RowWriter, vhost: str, name: str) -> exchanges.ExchangeRow:
    found = exchanges.get(writer.connection, vhost_id(writer, vhost), name)
    assert found is not None
    return found


def test_the_catalog_equals_plain_dicts_after_any_loss() -> None:
    """HS-02, HS-05, HS-06: the machine's invariant says it after every step; that SQL forgot something is seen here."""
    run_state_machine_as_test(CatalogMachine, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
    assert CatalogMachine.forgotten > 0
