from __future__ import annotations

import pytest

from tests.broker.exchanges.rows import binding, exchange, queue
from warren.base.errors import Misuse, Refused
from warren.base.ids import ExchangeId, QueueId
from warren.broker.exchanges.routing import CACHED_RESULTS_MAX, Routing, load
from warren.broker.exchanges.simple import InternalExchange, UnknownExchange, UnknownExchangeType
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow

QUEUES = [queue(number) for number in range(1, 6)]
X, Y, Z = ExchangeId(100), ExchangeId(101), ExchangeId(102)


def routing_of(exchanges: list[ExchangeRow], *bindings: BindingRow) -> Routing:
    return load(exchanges, QUEUES, bindings)


def test_the_default_exchange_takes_the_key_for_a_queues_name() -> None:
    routing = routing_of([exchange(100, name="")])
    assert routing.publish(X, "q3").queues == (3,)
    assert routing.publish(X, "q9").queues == ()
    routing.add_queue(queue(9))
    assert routing.publish(X, "q9").queues == (9,)
    routing.remove_queue(QueueId(9))
    assert routing.publish(X, "q9").queues == ()


def test_a_queue_of_several_bindings_gets_a_message_once_and_queues_come_in_the_order_of_their_ids() -> None:
    rows = [binding(1, 100, 4, "#"), binding(2, 100, 2, "a"), binding(3, 100, 4, "a"), binding(4, 100, 1, "*")]
    assert routing_of([exchange(100, "topic")], *rows).publish(X, "a").queues == (1, 2, 4)
    assert routing_of([exchange(100, "topic")], *reversed(rows)).publish(X, "a").queues == (1, 2, 4)


def test_exchanges_bound_to_each_other_in_a_circle_are_visited_once() -> None:
    routing = routing_of(
        [exchange(100, "fanout"), exchange(101), exchange(102, "topic")],
        *(binding(1, 100, 101), binding(2, 101, 102, "a"), binding(3, 102, 100, "#"), binding(4, 102, 102, "#")),
        *(binding(5, 100, 1), binding(6, 101, 2, "a"), binding(7, 102, 3, "a"), binding(8, 102, 1, "#")),
    )
    assert routing.publish(X, "a").queues == (1, 2, 3)
    assert routing.publish(X, "b").queues == (1,)


def test_an_alternate_exchange_is_used_if_nothing_matched_and_so_on_along_the_chain() -> None:
    routing = routing_of(
        [exchange(100, alternate_exchange="x101"), exchange(101, alternate_exchange="x102"), exchange(102, "fanout")],
        *(binding(1, 100, 1, "a"), binding(2, 101, 2, "b"), binding(3, 102, 3)),
    )
    assert [routing.publish(X, key).queues for key in "abc"] == [(1,), (2,), (3,)]


def test_alternate_exchanges_in_a_circle_end() -> None:
    routing = routing_of([exchange(100, alternate_exchange="x101"), exchange(101, alternate_exchange="x100")])
    assert routing.publish(X, "a").queues == ()
    assert routing_of([exchange(100, alternate_exchange="x100")]).publish(X, "a").queues == ()


def test_an_exchange_reached_by_a_binding_uses_its_own_alternate_but_not_the_one_before_it() -> None:
    first, second = exchange(100, "fanout", alternate_exchange="x103"), exchange(101, alternate_exchange="x102")
    routing = routing_of(
        [first, second, exchange(102, "fanout"), exchange(103, "fanout")],
        *(binding(1, 100, 101), binding(2, 102, 2), binding(3, 103, 3)),
    )
    assert routing.publish(X, "a").queues == (2,)


def test_an_alternate_exchange_may_be_declared_later_or_be_no_name_at_all() -> None:
    routing = routing_of([exchange(100, alternate_exchange="x101"), exchange(102, alternate_exchange=5)])
    assert routing.publish(X, "a").queues == () and routing.publish(Z, "a").queues == ()
    routing.add_exchange(exchange(101, "fanout"))
    routing.add_binding(binding(1, 101, 1))
    assert routing.publish(X, "a").queues == (1,)
    routing.remove_exchange(Y)
    assert routing.publish(X, "a").queues == ()


def test_an_exchange_without_bindings_counts_as_a_link_of_the_chain_from_its_declaration_to_its_end() -> None:
    routing = routing_of([exchange(100, alternate_exchange="x101"), exchange(102, "fanout")], binding(1, 102, 1))
    assert routing.publish(X, "a").queues == ()
    routing.add_exchange(exchange(101, alternate_exchange="x102"))
    assert routing.publish(X, "a").queues == (1,) and routing.forward(Y, "a").queues == (1,)
    assert routing.remove_exchange(Y) == []
    assert routing.publish(X, "a").queues == ()
    with pytest.raises(UnknownExchange, match="101"):
        routing.forward(Y, "a")


def test_the_default_exchange_works_as_an_alternate_exchange() -> None:
    assert routing_of([exchange(100, alternate_exchange=""), exchange(101, name="")]).publish(X, "q2").queues == (2,)


def test_an_internal_exchange_refuses_clients_and_takes_what_exchanges_and_the_broker_hand_it() -> None:
    rows = [exchange(100, "fanout"), exchange(101, "fanout", internal=True)]
    routing = routing_of(rows, binding(1, 100, 101), binding(2, 101, 1))
    assert routing.publish(X, "a").queues == (1,)
    assert routing.forward(Y, "a").queues == (1,)
    with pytest.raises(InternalExchange, match="x101"):
        routing.publish(Y, "a")  # also though its result is remembered by now


def test_copies_add_keys_and_the_alternate_is_used_only_if_none_of_them_matched() -> None:
    routing = routing_of(
        [exchange(100, alternate_exchange="x101"), exchange(101, "fanout")],
        *(binding(1, 100, 1, "a"), binding(2, 100, 2, "b"), binding(3, 100, 3, "c"), binding(4, 101, 4)),
    )
    headers = {"CC": ["b", "a"], "BCC": ["c"]}
    assert routing.publish(X, "a", headers) == ((1, 2, 3), (("b", "a"), ("c",)))
    assert routing.publish(X, "none", {"BCC": ["c"]}).queues == (3,)
    assert routing.publish(X, "none", {"CC": ["nor this"]}).queues == (4,)
    assert routing.publish(X, "a").queues == (1,), "a result with copies is not cached"


def test_what_only_a_key_decides_is_remembered_and_what_headers_decide_is_not() -> None:
    routing = routing_of(
        [exchange(100, "topic"), exchange(101, "fanout"), exchange(102, "headers")],
        *(binding(1, 100, 1, "#"), binding(2, 101, 102), binding(3, 102, 2, "", {"a": 1})),
    )
    assert routing.publish(X, "a", {"a": 1}) is routing.publish(X, "a", {"a": 2})
    assert routing.publish(Y, "a", {"a": 1}).queues == (2,)
    assert routing.publish(Y, "a", {"a": 2}).queues == ()
    assert routing.publish(Y, "a", {"a": 1}).queues == (2,)


def test_no_more_results_are_remembered_than_allowed() -> None:
    routing = routing_of([exchange(100, "fanout")], binding(1, 100, 1))
    first = routing.publish(X, "first")
    for number in range(CACHED_RESULTS_MAX):
        routing.publish(X, str(number))
    assert routing.publish(X, "first") is not first
    assert routing.publish(X, "first") == first


def test_a_change_of_bindings_is_seen_at_once() -> None:
    routing = routing_of([exchange(100), exchange(101, "fanout")], binding(1, 101, 2))
    assert routing.publish(X, "a").queues == ()
    routing.add_binding(binding(2, 100, 1, "a"))
    assert routing.publish(X, "a").queues == (1,)
    routing.add_binding(binding(3, 100, 101, "a"))
    assert routing.publish(X, "a").queues == (1, 2)
    routing.remove_binding(binding(2, 100, 1, "a"))
    routing.remove_binding(binding(2, 100, 1, "a"))
    assert routing.publish(X, "a").queues == (2,)
    assert routing.remove_queue(QueueId(2)) == [binding(1, 101, 2)]
    assert routing.publish(X, "a").queues == ()
    assert not routing.is_used(Y)


def test_a_deleted_exchange_takes_the_bindings_from_it_and_to_it_along() -> None:
    rows = [binding(1, 100, 101), binding(2, 101, 1), binding(3, 100, 2), binding(4, 101, 101)]
    routing = routing_of([exchange(100, "fanout"), exchange(101, "fanout")], *rows)
    assert routing.publish(X, "a").queues == (1, 2)
    assert sorted(each.id for each in routing.remove_exchange(Y)) == [1, 2, 4]
    assert routing.publish(X, "a").queues == (2,)
    assert routing.exchange("x101") is None and routing.exchange("x100") == exchange(100, "fanout")
    with pytest.raises(UnknownExchange):
        routing.publish(Y, "a")
    assert routing.is_used(X)
    routing.remove_binding(rows[2])
    assert not routing.is_used(X)


def test_a_change_that_is_refused_changes_nothing() -> None:
    routing = routing_of([exchange(100, "fanout"), exchange(101, name="")], binding(1, 100, 1))
    routing.add_exchange(exchange(100, "fanout"))  # again: the bindings stay
    with pytest.raises(UnknownExchangeType, match="x-random"):
        routing.add_exchange(exchange(103, "x-random"))
    for bad in (binding(2, 100, 9), binding(2, 100, 109), binding(2, 109, 1), binding(2, 101, 1)):
        with pytest.raises((Misuse, Refused)):
            routing.add_binding(bad)
    with pytest.raises(Misuse, match="already"):
        routing.add_exchange(exchange(104, name="x100"))
    with pytest.raises(Misuse, match="already"):
        routing.add_queue(queue(9, "q1"))
    with pytest.raises(Misuse, match="no queue 9"):
        routing.remove_queue(QueueId(9))
    assert routing.publish(X, "a").queues == (1,)
    assert routing.publish(Y, "q1").queues == (1,)
