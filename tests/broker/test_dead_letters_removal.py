"""Dead letters of AMQP: through exchanges, with RabbitMQ's headers, and nothing lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.routed_stage import RoutedStage, wire
from tests.broker.stage import Waiter, settling
from tests.broker.test_request_batch import BatchStage, Reader, Sender
from warren.amqp.types import Long, Timestamp
from warren.base.ids import Epoch
from warren.broker.dead_letters import DeadLetterRoutes
from warren.broker.errors import NotYours, QueueFull
from warren.broker.queue_arguments import Overflow
from warren.catalog.bindings import BindingRow
from warren.queue_index.batch import IndexBatch


@pytest.fixture(params=["memory", "variable"])
def stage(request: pytest.FixtureRequest) -> Iterator[RoutedStage]:
    stage = RoutedStage(default=request.param).up()
    yield stage
    stage.down()


def deaths(stage: RoutedStage, name: str) -> list[list[tuple[Any, ...]]]:
    """Of each message: queue, reason, count."""
    return [
        [(each["queue"], each["reason"], each["count"]) for each in (properties.headers or {})["x-death"]]
        for _, properties, _ in stage.read(name)
    ]


def test_a_letter_goes_by_its_own_key_to_all_queues_that_the_exchange_leads_to(stage: RoutedStage) -> None:
    stage.exchange("dlx", "topic")
    for name, key in (("all", "#"), ("orders", "order.*"), ("bills", "bill.*")):
        stage.queue(name)
        stage.bind("dlx", name, key)
    stage.queue("work", dead_letter_exchange="dlx")
    stage.send(wire(b"1"), to="work", exchange="in", key="order.new")
    stage.send(wire(b"2"), to="work", exchange="in", key="bill.new")
    stage.reject("work", 2)
    assert [stage.bodies(name) for name in ("orders", "bills")] == [[b"1"], [b"2"]]
    found = stage.read("all")
    assert [(body, origin.exchange, origin.routing_key) for body, _, origin in found] == [
        (b"1", "dlx", "order.new"),
        (b"2", "dlx", "bill.new"),
    ]


def test_the_headers_are_those_of_rabbitmq(stage: RoutedStage) -> None:
    stage.exchange("dlx", "fanout")
    stage.queue("dead")
    stage.bind("dlx", "dead")
    stage.queue("work", message_ttl_ms=10, dead_letter_exchange="dlx")
    content = wire(b"body", headers={"CC": ["c1"], "z": 1}, expiration="5000", priority=3, delivery_mode=2)
    stage.send(content, to="work", exchange="in", key="k")
    stage.pass_ms(10)
    [(body, properties, _)] = stage.read("dead")
    death = {
        "count": Long(1),
        "reason": "expired",
        "queue": "work",
        "time": Timestamp(stage.clock.wall_ns() // 1_000_000_000),
        "exchange": "in",
        "routing-keys": ["k", "c1"],
        "original-expiration": "5000",
    }
    assert (body, properties.expiration, properties.priority, properties.delivery_mode) == (b"body", None, 3, 2)
    assert properties.headers == {
        "CC": ["c1"],
        "x-death": [death],
        "x-first-death-exchange": "in",
        "x-first-death-queue": "work",
        "x-first-death-reason": "expired",
        "z": 1,
    }
    assert [type(properties.headers["x-death"][0][name]) for name in ("count", "time")] == [Long, Timestamp]


def test_a_key_of_its_own_takes_the_place_of_key_and_copies(stage: RoutedStage) -> None:
    stage.exchange("dlx", "direct")
    for name in ("set", "own", "copy"):
        stage.queue(name)
        stage.bind("dlx", name, name)
    stage.queue("with", dead_letter_exchange="dlx", dead_letter_key="set")
    stage.queue("without", dead_letter_exchange="dlx")
    content = wire(b"1", headers={"CC": ["copy"]})
    for name in ("with", "without"):
        stage.send(content, to=name, key="own")
        stage.reject(name)
    [(_, properties, origin)] = stage.read("set")
    assert properties.headers is not None and "CC" not in properties.headers
    assert properties.headers["x-death"][0]["routing-keys"] == ["own", "copy"]
    assert origin.routing_key == "set"
    assert [len(stage.read(name)) for name in ("own", "copy")] == [1, 1]


def test_the_default_exchange_takes_a_letter_to_the_queue_of_its_own_key(stage: RoutedStage) -> None:
    stage.queue("dead")
    stage.queue("work", dead_letter_exchange="")
    stage.send(wire(b"1"), to="work", exchange="in", key="dead")
    stage.send(wire(b"2"), to="work", exchange="in", key="unbound")
    stage.reject("work", 2)
    assert stage.bodies("dead") == [b"1"]
    assert stage.length("work") == 0


def test_an_exchange_that_is_not_there_takes_nothing_and_one_that_comes_later_does(stage: RoutedStage) -> None:
    stage.queue("dead")
    stage.queue("work", max_length=1, dead_letter_exchange="later")
    stage.send(wire(b"1"), wire(b"2"), to="work")
    stage.exchange("later", "fanout")
    stage.send(wire(b"3"), to="work")
    assert stage.length("dead") == 0
    stage.bind("later", "dead")
    stage.send(wire(b"4"), to="work")
    assert (stage.bodies("dead"), stage.bodies("work")) == ([b"3"], [b"4"])


def test_a_move_to_several_queues_is_one_session(stage: RoutedStage) -> None:
    ends: list[IndexBatch] = []
    end = IndexBatch.end

    def counted(changes: IndexBatch) -> Epoch:
        ends.append(changes)
        return end(changes)

    stage.exchange("dlx", "fanout")
    stage.exchange("next", "fanout")
    stage.bind("dlx", "next")
    for name in ("a", "b", "c"):
        stage.queue(name)
        stage.bind("next" if name == "c" else "dlx", name)
    stage.queue("work", message_ttl_ms=10, dead_letter_exchange="dlx")
    stage.send(wire(b"1"), wire(b"2"), to="work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IndexBatch, "end", counted)
        stage.pass_ms(10)
    assert len(ends) == 1
    assert [stage.bodies(name) for name in "abc"] == [[b"1", b"2"]] * 3


def test_deaths_are_counted_and_an_automatic_cycle_is_dropped(stage: RoutedStage) -> None:
    stage.queue("a", message_ttl_ms=10, dead_letter="b")
    stage.queue("b", message_ttl_ms=10, dead_letter="a")
    stage.send(wire(b"1"), to="a")
    stage.pass_ms(10)
    assert (stage.length("a"), stage.length("b")) == (0, 1)
    stage.pass_ms(10)
    assert (stage.length("a"), stage.length("b")) == (0, 0)


def test_a_cycle_with_a_rejection_is_allowed(stage: RoutedStage) -> None:
    stage.queue("work", dead_letter="later")
    stage.queue("later", message_ttl_ms=10, dead_letter="work")
    stage.send(wire(b"1"), to="work")
    for _ in range(3):
        stage.reject("work")
        stage.pass_ms(10)
    assert deaths(stage, "work") == [[("later", "expired", 3), ("work", "rejected", 3)]]


def test_a_circle_leaves_out_the_queue_it_would_come_back_to_and_no_other(stage: RoutedStage) -> None:
    stage.exchange("dlx", "fanout")
    stage.queue("work", message_ttl_ms=10, dead_letter_exchange="dlx")
    stage.queue("dead")
    for name in ("work", "dead"):
        stage.bind("dlx", name)
    stage.send(wire(b"1"), to="work")
    stage.pass_ms(10)
    assert (stage.bodies("work"), stage.bodies("dead")) == ([], [b"1"])


def test_messages_on_different_routes_keep_their_order(stage: RoutedStage) -> None:
    stage.exchange("dlx", "headers")
    for name in ("odd", "even", "all"):
        stage.queue(name)
    stage.bind("dlx", "odd", odd=1)
    stage.bind("dlx", "even", odd=0)
    for number in (0, 1):
        stage.bind("dlx", "all", odd=number)
    stage.queue("work", dead_letter_exchange="dlx")
    stage.send(*(wire(b"%d" % number, headers={"odd": number % 2}) for number in range(6)), to="work")
    stage.reject("work", 6)
    assert [stage.bodies(name) for name in ("odd", "even")] == [[b"1", b"3", b"5"], [b"0", b"2", b"4"]]
    assert stage.bodies("all") == [b"%d" % number for number in range(6)]


def test_priority_and_persistence_go_along_and_time_does_not(stage: RoutedStage) -> None:
    stage.queue("dead", max_priority=5)
    stage.queue("work", durable=False, dead_letter="dead")
    now_ms = stage.clock.wall_ns() // 1_000_000
    stage.send(wire(b"low", delivery_mode=2), to="work", expires_ms=now_ms + 10)
    stage.send(wire(b"high", priority=4, delivery_mode=2), to="work", priority=4)
    stage.send(wire(b"gone", priority=2, delivery_mode=1), to="work", priority=2, is_persistent=False)
    stage.reject("work", 3)
    stage.pass_ms(1000)
    taken = stage.take("dead", 10)
    results = [
        (content[-5:-1], each.slice.run.is_persistent)
        for each in taken.fetched
        for content in each.slice.contents or []
    ]
    assert results == [(b"high", True), (b"gone", False), (b"\x03low", True)]


def test_the_level_of_a_plain_body_is_its_priority(stage: RoutedStage) -> None:
    stage.queue("dead", max_priority=5)
    stage.queue("work", max_priority=5, message_ttl_ms=10, dead_letter="dead")
    for number in (1, 5, 3):
        stage.put(b"%d" % number, to="work", priority=number)
    stage.put(b"2", to="dead", priority=2)
    stage.queue_api.reject(stage.vhost.find_queue("work"), settling(stage.take("work")))
    stage.pass_ms(10)
    assert stage.get("dead") == [b"5", b"3", b"2", b"1"]


def test_a_body_of_many_frames_is_moved_unchanged(stage: RoutedStage) -> None:
    stage.queue("dead")
    stage.queue("work", dead_letter="dead")
    content = wire(b"x" * 20_000, frame_max=4096, correlation_id="7")
    stage.send(content, to="work")
    stage.reject("work")
    taken = stage.take("dead")
    [moved] = taken.fetched[0].slice.contents or []
    assert moved.endswith(content[8 + int.from_bytes(content[3:7]) :])
    assert len(stage.read("work")) == 0


@pytest.mark.parametrize("way", ["expired", "rejected"])
def test_a_message_that_cannot_be_decoded_is_set_aside_and_reported(stage: RoutedStage, way: str) -> None:
    """Nothing is lost: it stays where it is, and is there again after a restart."""
    stage.queue("dead")
    handle = stage.queue("work", message_ttl_ms=10, dead_letter="dead")
    stage.send(wire(b"1"), b"\x02\x00\x01nonsense", wire(b"3"), to="work")
    if way == "expired":
        stage.pass_ms(10)
    else:
        assert stage.queue_api.reject(handle, settling(stage.take("work", 3))) == 3
    assert stage.bodies("dead") == [b"1", b"3"]
    assert [problem for problem in stage.vhost.problems if "message 1 is set aside" in problem]
    queue = handle.serving()
    assert (len(queue.backing), queue.backing.pending_count) == (0, 1)


def test_what_is_refused_may_become_a_dead_letter(stage: RoutedStage) -> None:
    stage.exchange("dlx", "fanout")
    stage.queue("dead")
    stage.bind("dlx", "dead")
    stage.queue("work", max_length=1, overflow=Overflow.REJECT_PUBLISH_DLX, dead_letter_exchange="dlx")
    stage.send(wire(b"1"), to="work")
    with pytest.raises(QueueFull):
        stage.send(wire(b"2"), to="work")
    assert deaths(stage, "dead") == [[("work", "maxlen", 1)]]
    assert stage.bodies("work") == [b"1"]
    stage.queue("strict", max_length=0, overflow=Overflow.REJECT_PUBLISH, dead_letter_exchange="dlx")
    with pytest.raises(QueueFull):
        stage.send(wire(b"3"), to="strict")
    assert stage.length("dead") == 0


def test_a_full_target_refuses_letters_or_sends_them_on(stage: RoutedStage) -> None:
    stage.queue("last")
    stage.queue("refuses", max_length=1, overflow=Overflow.REJECT_PUBLISH)
    stage.queue("sends on", max_length=1, overflow=Overflow.REJECT_PUBLISH_DLX, dead_letter="last")
    stage.exchange("dlx", "fanout")
    for name in ("refuses", "sends on"):
        stage.bind("dlx", name)
    stage.queue("work", dead_letter_exchange="dlx")
    stage.send(wire(b"1"), wire(b"2"), wire(b"3"), to="work")
    stage.reject("work", 3)
    assert [stage.bodies(name) for name in ("refuses", "sends on")] == [[b"1"], [b"1"]]
    assert deaths(stage, "last") == [[("sends on", "maxlen", 1), ("work", "rejected", 1)]] * 2


def test_a_message_is_requeued_up_to_its_limit(stage: RoutedStage) -> None:
    """As RabbitMQ's quorum queues: a limit of two, three deliveries."""
    stage.queue("dead")
    handle = stage.queue("work", queue_type="quorum", delivery_limit=2, dead_letter="dead")
    stage.send(wire(b"1"), wire(b"2"), to="work")
    for _ in range(3):
        taken = stage.take("work")
        stage.queue_api.requeue(handle, settling(taken))
    with pytest.raises(NotYours):
        stage.queue_api.requeue(handle, settling(taken))
    assert deaths(stage, "dead") == [[("work", "delivery_limit", 1)]]
    assert (stage.length("work"), len(handle.serving().delivery_counts)) == (1, 0)


def test_some_may_be_given_back_and_others_not(stage: RoutedStage) -> None:
    stage.queue("dead")
    handle = stage.queue("work", queue_type="quorum", delivery_limit=1, dead_letter="dead")
    stage.send(*(wire(b"%d" % number) for number in range(4)), to="work")
    stage.queue_api.requeue(handle, settling(stage.take("work", 2)))
    assert stage.queue_api.requeue(handle, settling(stage.take("work", 4))) == 4
    assert stage.bodies("dead") == [b"0", b"1"]
    assert stage.bodies("work") == [b"2", b"3"]
    assert len(handle.serving().delivery_counts) == 0


def test_a_target_comes_back_under_its_limit_after_a_large_move(stage: RoutedStage) -> None:
    """One session moves a bounded number of bytes: the others follow immediately, not with the next put."""
    stage.queue("last")
    stage.queue("dead", max_length=3, dead_letter="last")
    stage.queue("work", message_ttl_ms=10, dead_letter="dead")
    stage.send(*(wire(b"%02d" % number * 50) for number in range(40)), to="work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warren.broker.unit_of_work.STEP_BYTES", 1000)
        stage.pass_ms(10)
    assert [stage.length(name) for name in ("work", "dead", "last")] == [0, 3, 37]
    assert stage.bodies("last") == [b"%02d" % number * 50 for number in range(37)]


@pytest.mark.parametrize("way", ["expired", "rejected", "over the limit"])
def test_a_way_that_changes_in_the_middle_loses_nothing(stage: RoutedStage, way: str) -> None:
    """The locks are for the queues that could be reached before: the message waits, and takes the new route."""
    stage.exchange("dlx", "fanout")
    for name in ("old", "new"):
        stage.queue(name)
    row = stage.bind("dlx", "old")
    handle = stage.queue("work", message_ttl_ms=10, max_length=2, dead_letter_exchange="dlx")
    changed: list[BindingRow] = []
    reach = DeadLetterRoutes.reach

    def reached(dead_letter_routes: DeadLetterRoutes, exchange: str, routing_key: str | None) -> Any:
        found = reach(dead_letter_routes, exchange, routing_key)
        if not changed:
            changed.append(stage.bind("dlx", "new"))
            stage.routing.remove_binding(row)
        return found

    with pytest.MonkeyPatch.context() as patch:
        stage.send(wire(b"1"), wire(b"2"), to="work")
        patch.setattr(DeadLetterRoutes, "reach", reached)
        if way == "expired":
            stage.pass_ms(10)
        elif way == "rejected":
            stage.queue_api.reject(handle, settling(stage.take("work", 2)))
        else:
            stage.send(wire(b"3"), wire(b"4"), to="work")
    assert changed
    assert (stage.bodies("old"), stage.bodies("new")) == ([], [b"1", b"2"])


def test_a_target_that_cannot_be_started_gets_nothing_and_blocks_no_other(stage: RoutedStage) -> None:
    stage.exchange("dlx", "fanout")
    dead = stage.queue("dead")
    stage.bind("dlx", "dead")
    stage.queue("work", message_ttl_ms=10, dead_letter_exchange="dlx")
    stage.send(wire(b"1"), to="work")
    stage.vhost.delete_queue(dead)  # the routing still has it
    stage.pass_ms(10)
    assert stage.length("work") == 0


def test_counts_of_what_is_gone_are_forgotten(stage: RoutedStage) -> None:
    handle = stage.queue("work", queue_type="quorum", delivery_limit=5, message_ttl_ms=10)
    for settle in (stage.queue_api.ack, stage.queue_api.reject):
        stage.send(wire(b"1"), wire(b"2"), to="work")
        stage.queue_api.requeue(handle, settling(stage.take("work", 2)))
        assert len(handle.serving().delivery_counts) == 2
        settle(handle, settling(stage.take("work", 1)))
        assert len(handle.serving().delivery_counts) == 1
        stage.pass_ms(10)
        assert len(handle.serving().delivery_counts) == 0


def test_a_time_of_zero_means_now_or_never(stage: RoutedStage) -> None:
    """As in RabbitMQ: a waiting getter receives it, a later one does not."""
    handle = stage.queue("work", message_ttl_ms=0)
    waiter = Waiter(count=2)
    stage.queue_api.wait(handle, waiter)
    stage.put(b"1", b"2", b"3", to="work")
    assert waiter.handed == [[b"1", b"2"]]
    assert stage.get("work") == []
    assert stage.length("work") == 0
    stage.put(b"4", to="work")
    assert stage.get("work") == []


def test_a_time_of_zero_is_now_for_a_consumer_with_room_and_never_for_one_without() -> None:
    stage = BatchStage()
    stage.broker.queue("work")
    reader = Reader(1)
    stage.consume("work", reader)
    stage.end()
    now_ms = stage.broker.clock.wall_ns() // 1_000_000
    stage.publish(Sender(), 1, b"1", b"2", to=stage.route("work"), expires_ms=now_ms)
    stage.end()
    assert reader.contents == [b"1"]
    stage.broker.pass_ms(1)
    assert stage.broker.length("work") == 0
    stage.broker.down()
