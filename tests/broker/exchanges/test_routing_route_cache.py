"""Cached routes equal a fresh walk, and a change of rows invalidates the routes it affects."""

from __future__ import annotations

import random
from typing import Any

from tests.broker.exchanges.rows import binding, exchange, queue
from warren.base.ids import ExchangeId
from warren.broker.exchanges.routing import CACHED_RESULTS_MAX, MatchCache, Routing, load
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow

KEYS = ("", "q1", "q2", "q3", "k")


class Rows:
    """Rows that come and go, and a routing that follows them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.exchanges: dict[int, ExchangeRow] = {100: exchange(100, name="")}
        self.queues: dict[int, QueueRow] = {}
        self.bindings: dict[int, BindingRow] = {}
        self.routing = load(self.exchanges.values(), (), ())
        self.next_binding = 1

    def change(self) -> None:
        kind, id_ = (
            self.rng.choice(["exchange", "queue", "binding", "binding", "binding"]),
            self.rng.randrange(1, 5),
        )
        if kind == "exchange":
            self._change_exchange(100 + id_)
        elif kind == "queue":
            self._change_queue(id_)
        elif self.bindings and self.rng.random() < 0.4:
            self.routing.remove_binding(self.bindings.pop(self.rng.choice(list(self.bindings))))
        else:
            self._bind()

    def _change_exchange(self, id_: int) -> None:
        if id_ in self.exchanges:
            del self.exchanges[id_]
            self._forget(self.routing.remove_exchange(ExchangeId(id_)))
            return
        alternate = self.rng.choice([None, "", "x101", "x102", "x103"])
        more: dict[str, Any] = {} if alternate is None else {"alternate_exchange": alternate}
        self.exchanges[id_] = exchange(id_, self.rng.choice(["direct", "fanout", "headers"]), **more)
        self.routing.add_exchange(self.exchanges[id_])

    def _change_queue(self, id_: int) -> None:
        if id_ in self.queues:
            self._forget(self.routing.remove_queue(self.queues.pop(id_).id))
        else:
            self.queues[id_] = queue(id_)
            self.routing.add_queue(self.queues[id_])

    def _bind(self) -> None:
        sources, targets = [each for each in self.exchanges if each != 100], [*self.queues, *self.exchanges]
        if sources and targets:
            arguments = {"h": self.rng.randrange(2)}
            row = binding(
                self.next_binding,
                self.rng.choice(sources),
                self.rng.choice(targets),
                self.rng.choice(KEYS),
                arguments,
            )
            self.next_binding += 1
            self.bindings[row.id] = row
            self.routing.add_binding(row)

    def _forget(self, gone: list[BindingRow]) -> None:
        for row in gone:
            del self.bindings[row.id]


def results(routing: Routing, exchanges: list[int]) -> list[object]:
    found: list[object] = []
    for id_ in map(ExchangeId, exchanges):
        found.append(routing.reachable(id_))
        for key in KEYS:
            found += [routing.publish(id_, key).queues, routing.reachable(id_, key)]
            found.append(routing.publish(id_, key, {"h": 1}).queues)
    return found


def test_what_is_remembered_is_what_rows_loaded_afresh_come_to() -> None:
    for seed in range(30):
        rows = Rows(seed)
        for _ in range(60):
            rows.change()
            fresh = load(rows.exchanges.values(), rows.queues.values(), rows.bindings.values())
            assert results(rows.routing, list(rows.exchanges)) == results(fresh, list(rows.exchanges))


def test_a_cache_leaves_nothing_behind_of_what_it_forgot() -> None:
    cache = MatchCache[str]()
    one, two = ExchangeId(1), ExchangeId(2)
    cache.put((one, "a"), "a", {one, two})
    cache.put((one, None), "any", {one})
    cache.forget_key(two, "b")
    assert cache.get((one, "a")) == "a"
    cache.forget(two)
    assert (one, "a") not in cache and cache.get((one, None)) == "any"
    cache.update_any(one, lambda result: result + " more")
    assert cache.get((one, None)) == "any more"
    cache.forget_key(one, "a")
    assert not len(cache) and not cache._by_visited


def test_the_number_of_results_is_bounded() -> None:
    cache = MatchCache[int]()
    for number in range(CACHED_RESULTS_MAX + 1):
        cache.put((ExchangeId(1), str(number)), number, {ExchangeId(1)})
    assert len(cache) == 1
