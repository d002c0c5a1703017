"""Routing against a walk over a plain list of bindings, while bindings are added and removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.exchanges.rows import FIRST_EXCHANGE, binding, exchange, queue
from tests.broker.exchanges.test_topic import matches
from warren.base.ids import ExchangeId
from warren.broker.exchanges.routing import load
from warren.broker.exchanges.topic import words_of
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow

QUEUES = range(1, 4)
EXCHANGES = range(FIRST_EXCHANGE, FIRST_EXCHANGE + 4)
KEYS = ("", "a", "a.b")
KINDS = st.sampled_from(["direct", "fanout", "topic", "headers"])
HEADERS = st.sampled_from([{}, {"h": 1}, {"h": 2}, {"CC": ["a.b"]}, {"h": 1, "BCC": ["a", "a.b"]}])
TARGETS = st.sampled_from([*QUEUES, *EXCHANGES])
BINDINGS = st.lists(
    st.tuples(st.sampled_from(EXCHANGES), TARGETS, st.sampled_from([*KEYS, "#", "a.*"]), st.sampled_from([1, 2])),
    max_size=14,
).map(lambda drawn: [binding(n, at, to, key, {"h": h}) for n, (at, to, key, h) in enumerate(drawn, 1)])
TOPOLOGIES = st.tuples(*(st.tuples(KINDS, st.sampled_from([None, *EXCHANGES])) for _ in EXCHANGES)).map(
    lambda drawn: [
        exchange(id_, kind) if other is None else exchange(id_, kind, alternate_exchange=f"x{other}")
        for id_, (kind, other) in zip(EXCHANGES, drawn, strict=True)
    ]
)


def reached(
    rows: Iterable[ExchangeRow], bound: Iterable[BindingRow], start: int, keys: list[str], headers: dict[str, Any]
) -> tuple[int, ...]:
    """Every exchange that can be reached, grown until nothing is added; then what these lead to."""
    by_id: dict[int, ExchangeRow] = {row.id: row for row in rows}
    exchanges, queues = {start}, set[int]()
    while True:
        before = len(exchanges)
        for at in sorted(exchanges):
            met = [row for row in bound if row.source_id == at and is_met(by_id[at].type, row, keys, headers)]
            queues |= {row.queue_id for row in met if row.queue_id is not None}
            exchanges |= {row.exchange_id for row in met if row.exchange_id is not None}
            if not met and "alternate-exchange" in by_id[at].arguments:
                exchanges.add(int(by_id[at].arguments["alternate-exchange"][1:]))
        if len(exchanges) == before:
            return tuple(sorted(queues))


def is_met(kind: str, row: BindingRow, keys: list[str], headers: dict[str, Any]) -> bool:
    match kind:
        case "direct":
            return row.routing_key in keys
        case "topic":
            return any(matches(words_of(row.routing_key), words_of(key)) for key in keys)
        case "headers":
            return bool(headers.get("h") == row.arguments["h"])
    return True


@given(TOPOLOGIES, BINDINGS, st.lists(st.tuples(st.sampled_from(KEYS), HEADERS), min_size=1, max_size=4), st.data())
def test_routing_finds_what_a_naive_walk_finds_while_bindings_come_and_go(
    rows: list[ExchangeRow],
    bound: list[BindingRow],
    messages: list[tuple[str, dict[str, Any]]],
    data: st.DataObject,
) -> None:
    late = set(data.draw(st.lists(st.sampled_from([each.id for each in bound])))) if bound else set()
    now = [each for each in bound if each.id not in late]
    routing = load(rows, map(queue, QUEUES), now)

    def check() -> None:
        for key, headers in messages * 2:  # twice: the second time by what is remembered
            copies = [*headers.get("CC", []), *headers.get("BCC", [])]
            for start in EXCHANGES:
                wanted = reached(rows, now, start, [key, *copies], headers)
                assert routing.publish(ExchangeId(start), key, headers).queues == wanted

    check()
    for each in bound:
        if each.id in late:
            routing.add_binding(each)
            now.append(each)
    check()
    while len(now) > len(bound) // 2:
        routing.remove_binding(now.pop(0))
    check()
