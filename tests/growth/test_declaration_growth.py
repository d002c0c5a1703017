"""What a declaration, a binding and a routed message cost does not grow with what they do not touch: operations are
counted at n and at 4n, times are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.exchanges.rows import VHOST, exchange, queue
from warren.base.ids import BindingId, ExchangeId, QueueId
from warren.broker.exchanges import headers as headers_module
from warren.broker.exchanges import routing as routing_module
from warren.broker.exchanges.headers import Headers
from warren.broker.exchanges.routing import Routing
from warren.catalog.bindings import Binding

SIZE = 100


class Counted:
    """How often a function is called."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.calls = 0
        real = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            return real(*arguments, **named)

        patch.setattr(owner, name, counted)

    def during(self, act: Callable[[], object]) -> int:
        before = self.calls
        act()
        return self.calls - before


# -- dead-letter routes (issue 12, number 18) ------------------------------------------------------------------------


def bound(id_: int, source: int, to_queue: int, **arguments: Any) -> Binding:
    return Binding(BindingId(id_), VHOST, ExchangeId(source), QueueId(to_queue), None, "", arguments)


def bound_routing(count: int) -> Routing:
    """The default exchange, a fanout exchange with so many queues, and one without any."""
    routing = Routing()
    for row in (exchange(1, name=""), exchange(2, "fanout"), exchange(3, "fanout")):
        routing.add_exchange(row)
    for number in range(count):
        routing.add_queue(queue(100 + number, f"q{number}"))
        routing.add_binding(bound(10_000 + number, 2, 100 + number))
    return routing


@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_a_declaration_and_a_binding_elsewhere_keep_the_reachable_queues(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    routing, dead = bound_routing(count), ExchangeId(2)
    walked = Counted(monkeypatch, routing_module, "destination_of")
    assert walked.during(lambda: routing.reachable(dead)) == count

    def declare() -> None:
        routing.add_queue(queue(9_000, "new"))
        assert len(routing.reachable(dead)) == len(routing.reachable(dead, "any key")) == count

    routing.reachable(dead, "any key")
    assert walked.during(declare) == 0
    routing.add_binding(bound(90_000, 3, 9_000))
    assert walked.during(lambda: routing.reachable(dead)) == 0


@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_a_binding_to_the_exchange_itself_adds_one_queue(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    routing, dead = bound_routing(count), ExchangeId(2)
    routing.add_queue(queue(9_000, "new"))
    routing.reachable(dead)
    walked = Counted(monkeypatch, routing_module, "destination_of")

    def bind() -> None:
        routing.add_binding(bound(90_000, 2, 9_000))
        assert len(routing.reachable(dead)) == count + 1

    assert walked.during(bind) == 1


# -- headers exchanges (issue 12, number 19) -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["all", "any"])
@pytest.mark.parametrize("count", [SIZE, 4 * SIZE])
def test_a_message_is_compared_with_the_bindings_that_share_a_header_with_it(
    monkeypatch: pytest.MonkeyPatch, count: int, kind: str
) -> None:
    """Every message has another value, so that no memory of earlier messages helps."""
    matcher = Headers()
    for number in range(count):
        shared = {"type": "order"} if kind == "all" else {}
        matcher.add(bound(number + 1, 1, number + 1, **{"x-match": kind, **shared, "customer": number}))
    compared = Counted(monkeypatch, headers_module, "_is_met")
    for number in range(0, count, count // 10):
        sent = {"type": "order", "customer": number}
        assert compared.during(lambda: matcher.match("", sent)) <= 2  # noqa: B023 - called at once
        assert [to.queue for to in matcher.match("", sent)] == [number + 1]
