"""The headers of dead letters: byte by byte as RabbitMQ writes them, and nothing else touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.routed_stage import wire
from warren.amqp.content import Properties, body_of, properties_of, write_properties
from warren.amqp.errors import PeerError
from warren.amqp.types import Long, RawString, write_table
from warren.broker.death_headers import DeathEvent, DeathHeaders, is_circle, with_death, write_death_properties

DEATH = DeathEvent("work", "expired", 0x6AFACF76, "in", "k", None)

# What RabbitMQ 3.10.8 made of messages that were published with the properties in front.
GOLDEN = [
    (
        Properties(headers={"CC": ["c1"], "z": 1}, expiration="10", priority=3),
        DEATH,
        b"(\x00\x00\x00\x01\r\x02CCA\x00\x00\x00\x07S\x00\x00\x00\x02c1\x07x-deathA\x00\x00\x00\x8eF\x00\x00\x00\x89"
        b"\x05countl\x00\x00\x00\x00\x00\x00\x00\x01\x06reasonS\x00\x00\x00\x07expired\x05queueS\x00\x00\x00\x04work"
        b"\x04timeT\x00\x00\x00\x00j\xfa\xcfv\x08exchangeS\x00\x00\x00\x02in\x0crouting-keysA\x00\x00\x00\rS\x00\x00"
        b"\x00\x01kS\x00\x00\x00\x02c1\x13original-expirationS\x00\x00\x00\x0210\x16x-first-death-exchangeS\x00\x00"
        b"\x00\x02in\x13x-first-death-queueS\x00\x00\x00\x04work\x14x-first-death-reasonS\x00\x00\x00\x07expired\x01z"
        b"I\x00\x00\x00\x01\x03",
    ),
    (
        Properties(),
        DEATH._replace(reason="rejected"),
        b" \x00\x00\x00\x00\xd7\x07x-deathA\x00\x00\x00mF\x00\x00\x00h\x05countl\x00\x00\x00\x00\x00\x00\x00\x01\x06"
        b"reasonS\x00\x00\x00\x08rejected\x05queueS\x00\x00\x00\x04work\x04timeT\x00\x00\x00\x00j\xfa\xcfv\x08exchange"
        b"S\x00\x00\x00\x02in\x0crouting-keysA\x00\x00\x00\x06S\x00\x00\x00\x01k\x16x-first-death-exchangeS\x00\x00\x00"
        b"\x02in\x13x-first-death-queueS\x00\x00\x00\x04work\x14x-first-death-reasonS\x00\x00\x00\x08rejected",
    ),
    (
        Properties(headers={"x-death": "text"}),
        DEATH._replace(reason="rejected", time_seconds=0x6AFACF7A),
        b" \x00\x00\x00\x00z\x07x-deathA\x00\x00\x00mF\x00\x00\x00h\x05countl\x00\x00\x00\x00\x00\x00\x00\x01\x06reason"
        b"S\x00\x00\x00\x08rejected\x05queueS\x00\x00\x00\x04work\x04timeT\x00\x00\x00\x00j\xfa\xcfz\x08exchangeS\x00\x00"
        b"\x00\x02in\x0crouting-keysA\x00\x00\x00\x06S\x00\x00\x00\x01k",
    ),
    (
        Properties(headers={"x-death": [{"queue": "work", "reason": "rejected"}]}),
        DEATH._replace(reason="rejected"),
        b" \x00\x00\x00\x00D\x07x-deathA\x00\x00\x007F\x00\x00\x002\x05countl\x00\x00\x00\x00\x00\x00\x00\x01\x05queueS"
        b"\x00\x00\x00\x04work\x06reasonS\x00\x00\x00\x08rejected",
    ),
]


@pytest.mark.parametrize(("before", "death", "after"), GOLDEN)
def test_properties_come_out_as_those_of_rabbitmq(before: Properties, death: DeathEvent, after: bytes) -> None:
    assert write_death_properties(write_properties(before), death).properties == after


def test_a_second_death_of_the_same_kind_is_counted_and_keeps_the_facts_of_the_first() -> None:
    """RabbitMQ 3.10.8, too: the order of the entry's fields, and the time of the first."""
    death = DeathEvent("loop", "rejected", 0x6AFACF77, "", "loop", "loop")
    once = write_death_properties(write_properties(Properties(headers={"CC": ["dead"]})), death)
    twice = write_death_properties(once.properties, death._replace(time_seconds=0x6AFACF99))
    assert twice.properties == (
        b" \x00\x00\x00\x00\xdf\x07x-deathA\x00\x00\x00wF\x00\x00\x00r\x05countl\x00\x00\x00\x00\x00\x00\x00\x02\x08"
        b"exchangeS\x00\x00\x00\x00\x05queueS\x00\x00\x00\x04loop\x06reasonS\x00\x00\x00\x08rejected\x0crouting-keysA"
        b"\x00\x00\x00\x12S\x00\x00\x00\x04loopS\x00\x00\x00\x04dead\x04timeT\x00\x00\x00\x00j\xfa\xcfw\x16"
        b"x-first-death-exchangeS\x00\x00\x00\x00\x13x-first-death-queueS\x00\x00\x00\x04loop\x14x-first-death-reasonS"
        b"\x00\x00\x00\x08rejected"
    )


TEXTS = st.none() | st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.booleans() | st.integers(-9, 9) | st.text(max_size=5) | st.lists(st.integers(0, 9), max_size=3)
PROPERTIES = st.builds(
    Properties,
    content_type=TEXTS,
    content_encoding=TEXTS,
    headers=st.none() | st.dictionaries(st.sampled_from(["a", "CC", "x-death", "zz"]), VALUES),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=TEXTS,
    reply_to=TEXTS,
    expiration=TEXTS,
    message_id=TEXTS,
    timestamp=st.none() | st.integers(0, 1 << 40),
    type=TEXTS,
    user_id=TEXTS,
    app_id=TEXTS,
    cluster_id=TEXTS,
)


@given(PROPERTIES, st.binary(max_size=50), st.sampled_from([None, "key"]))
def test_everything_but_headers_and_expiration_stays(before: Properties, body: bytes, new_key: str | None) -> None:
    content = wire(body, frame_max=16, **{name: getattr(before, name) for name in before.__slots__})
    moved, dead_lettered = DeathHeaders(DEATH._replace(new_key=new_key)).write_death(content)
    after = properties_of(moved)
    assert replace(after, headers=None) == replace(before, headers=None, expiration=None)
    assert moved[1:3] == content[1:3] and body_of(moved) == body
    assert (dead_lettered.priority, dead_lettered.is_persistent) == (before.priority or 0, before.is_persistent)
    assert write_table(after.headers or {}) == write_table(dead_lettered.headers)
    own = {"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"}
    gone = own if new_key is None else own | {"CC"}
    unchanged = {name: value for name, value in (before.headers or {}).items() if name not in gone}
    assert {name: value for name, value in (after.headers or {}).items() if name not in own} == unchanged


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: wire(b"body", headers={"a": 1})[:30] + tail))
def test_bytes_that_are_no_content_are_refused_and_nothing_else_happens(content: bytes) -> None:
    try:
        moved, _ = DeathHeaders(DEATH).write_death(content)
    except PeerError:
        return
    again, dead_lettered = DeathHeaders(DEATH).write_death(moved)
    assert len(again) == len(moved) and dead_lettered.headers["x-death"][0]["count"] == 2


def test_texts_need_not_be_text() -> None:
    """Neither RabbitMQ nor Warren parses them; otherwise the message could not be moved."""
    raw = b"\x05\x00" + b"\x02\xff\xfe" + b"\x03\xff10"  # correlation-id, expiration
    dead_lettered = write_death_properties(raw, DEATH)
    assert dead_lettered.properties[:2] == b"\x24\x00" and dead_lettered.properties.endswith(b"\x02\xff\xfe")
    assert dead_lettered.headers["x-death"][0]["original-expiration"] == RawString(b"\xff10")


def test_messages_alike_are_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bytes] = []

    def counted(raw: bytes, death: DeathEvent) -> Any:
        opened.append(raw)
        return write_death_properties(raw, death)

    monkeypatch.setattr("warren.broker.death_headers.write_death_properties", counted)
    death_headers = DeathHeaders(DEATH)
    for number in range(100):
        death_headers.write_death(wire(b"x" * number, headers={"a": number % 2}))
    assert len(opened) == 2


def test_a_client_may_write_what_it_likes_into_x_death() -> None:
    ours = {"count": Long(4), "queue": "work", "reason": "expired"}
    for junk in ("text", 7, {"queue": 5}, ["deep"], None):
        headers = with_death({"x-death": [junk, ours]}, DEATH, None)
        assert headers["x-death"] == [ours | {"count": Long(5)}, junk]
        assert not is_circle("other", [ours, junk])
    for count in ("4", None, True, -3):
        headers = with_death({"x-death": [ours | {"count": count}]}, DEATH, None)
        assert headers["x-death"][0]["count"] == Long(1)


def test_no_death_is_dropped_or_a_cycle_would_not_be_noticed() -> None:
    """Issue 12, number 4: 64 were kept."""
    many = [{"queue": f"q{number}", "reason": "expired", "count": Long(1)} for number in range(200)]
    headers = with_death({"x-death": many}, DEATH, None)
    assert [each["queue"] for each in headers["x-death"]] == ["work", *(each["queue"] for each in many)]
    assert is_circle("q199", headers["x-death"])


def entries(*deaths: str) -> list[dict[str, Any]]:
    """`queue`, or `queue=count`, each rejected; the position is in the entry."""
    deaths_table: list[dict[str, Any]] = []
    for at, (queue, _, count) in enumerate(each.partition("=") for each in deaths):
        more = {"count": Long(int(count))} if count else {}
        deaths_table.append({"queue": queue, "reason": "rejected", "at": at, **more})
    return deaths_table


# What RabbitMQ 3.10.8 counts of foreign entries; it turns the order of those behind the first round at each death.
MERGED = [
    (entries("a"), [("work", 1, None), ("a", None, 0)]),
    (entries("a", "b"), [("work", 1, None), ("a", 1, 0), ("b", 1, 1)]),
    (entries("a", "a", "b"), [("work", 1, None), ("a", 2, 0), ("b", 1, 2)]),
    (entries("a=3", "a=4", "b=1"), [("work", 1, None), ("a", 3, 0), ("b", 1, 2)]),
    (entries("a", "a=4", "b=1"), [("work", 1, None), ("a", 2, 0), ("b", 1, 2)]),
    (entries("work"), [("work", 1, 0)]),
    (entries("work", "work"), [("work", 3, 0)]),
    (entries("work", "b", "work", "work", "c"), [("work", 4, 0), ("b", 1, 1), ("c", 1, 4)]),
    (entries("work=2", "work=10"), [("work", 3, 0)]),
    (entries("b", "work"), [("work", 2, 1), ("b", 1, 0)]),
]


@pytest.mark.parametrize(("before", "after"), MERGED)
def test_entries_of_one_queue_and_reason_are_merged(
    before: list[dict[str, Any]], after: list[tuple[str, int | None, int | None]]
) -> None:
    deaths_table = with_death({"x-death": before}, DEATH._replace(reason="rejected"), None)["x-death"]
    assert [(each["queue"], each.get("count"), each.get("at")) for each in deaths_table] == after


def test_entries_that_differ_in_their_reason_are_not_merged() -> None:
    before = [{"queue": "a", "reason": "expired"}, {"queue": "a", "reason": "rejected"}]
    deaths_table = with_death({"x-death": before}, DEATH, None)["x-death"]
    assert [(each["queue"], each["reason"]) for each in deaths_table[1:]] == [("a", "expired"), ("a", "rejected")]


def test_a_circle_is_one_only_without_a_rejection_or_a_foreign_entry_in_it() -> None:
    def deaths_table(*deaths: tuple[str, str]) -> list[dict[str, str]]:
        return [{"queue": queue, "reason": reason} for queue, reason in deaths]

    assert is_circle("a", deaths_table(("a", "expired")))
    assert not is_circle("b", deaths_table(("a", "expired")))
    assert is_circle("a", deaths_table(("b", "maxlen"), ("a", "delivery_limit")))
    assert not is_circle("a", deaths_table(("b", "expired"), ("a", "rejected")))
    assert not is_circle("a", deaths_table(("c", "expired"), ("b", "rejected"), ("a", "expired")))
    assert is_circle("a", deaths_table(("b", "expired"), ("a", "expired"), ("c", "rejected")))
    assert not is_circle("a", deaths_table(("a", "rejected")))
    assert not is_circle("a", [*deaths_table(("b", "expired")), "junk", *deaths_table(("a", "expired"))])
    assert not is_circle("a", "text")
