"""aio-pika: the same broker from a loop. Robust connections, iterators, `process()`, parallel publishing, patterns."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import aiormq.exceptions
import pytest
from aio_pika import ExchangeType, Message
from aio_pika.patterns import RPC, Master

from tests.interop.brokers import Broker
from tests.interop.conftest import Names

SECONDS_MAX = 10.0


@asynccontextmanager
async def opened(broker: Broker, **options: Any) -> AsyncIterator[Any]:
    async with await aio_pika.connect_robust(broker.url) as connection:
        yield await connection.channel(**options)


async def publish(channel: Any, queue: Any, *bodies: bytes, **properties: Any) -> None:
    """All at once; returns when all of them are confirmed."""
    exchange = channel.default_exchange
    await asyncio.gather(*(exchange.publish(Message(body, **properties), queue.name) for body in bodies))


async def drained(queue: Any) -> list[bytes]:
    found = []
    while fetched := await queue.get(no_ack=True, fail=False):
        found.append(fetched.body)
    return found


async def ignore(_: Any) -> None:
    """A consumer that receives nothing."""


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize(
    ("type_", "key", "arguments", "reached"),
    [
        (ExchangeType.DIRECT, "a.b", None, True),
        (ExchangeType.DIRECT, "a.*", None, False),
        (ExchangeType.FANOUT, "anything", None, True),
        (ExchangeType.TOPIC, "a.*", None, True),
        (ExchangeType.TOPIC, "b.#", None, False),
        (ExchangeType.HEADERS, "", {"x-match": "any", "kind": "pdf"}, True),
        (ExchangeType.HEADERS, "", {"x-match": "all", "kind": "pdf", "more": 1}, False),
    ],
)
async def test_every_type_of_exchange_routes(
    broker: Broker, names: Names, type_: Any, key: str, arguments: Any, reached: bool
) -> None:
    async with opened(broker) as channel:
        exchange = await channel.declare_exchange(names.exchange(), type_)
        queue = await channel.declare_queue(names.queue())
        await queue.bind(exchange, key, arguments=arguments)
        await exchange.publish(Message(b"m", headers={"kind": "pdf"}), "a.b", mandatory=False)
        assert await drained(queue) == [b"m"] * reached
        await queue.unbind(exchange, key, arguments=arguments)
        await exchange.publish(Message(b"m", headers={"kind": "pdf"}), "a.b", mandatory=False)
        assert await drained(queue) == []


async def test_exchanges_are_bound_to_exchanges_and_have_alternates(broker: Broker, names: Names) -> None:
    async with opened(broker) as channel:
        rest = await channel.declare_exchange(names.exchange("rest"), ExchangeType.FANOUT, internal=True)
        front = await channel.declare_exchange(
            names.exchange("front"), ExchangeType.TOPIC, arguments={"alternate-exchange": rest.name}
        )
        back = await channel.declare_exchange(names.exchange("back"), ExchangeType.FANOUT)
        wanted, unwanted = [await channel.declare_queue(names.queue(name)) for name in ("wanted", "unwanted")]
        await back.bind(front, "to.#")
        await wanted.bind(back)
        await unwanted.bind(rest)
        await front.publish(Message(b"1"), "to.you")
        await front.publish(Message(b"2"), "from.you")
        assert (await drained(wanted), await drained(unwanted)) == ([b"1"], [b"2"])
        await back.unbind(front, "to.#")
        await front.publish(Message(b"3"), "to.you")
        assert (await drained(wanted), await drained(unwanted)) == ([], [b"3"])


async def test_a_thousand_messages_published_in_parallel_are_confirmed_and_iterated_in_order(
    broker: Broker, names: Names
) -> None:
    """QP-06"""
    async with opened(broker) as channel:
        await channel.set_qos(prefetch_count=50)
        queue = await channel.declare_queue(names.queue(), durable=True)
        await publish(channel, queue, *numbered(1000), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        found = []
        async with queue.iterator(timeout=SECONDS_MAX) as messages:
            async for message in messages:
                async with message.process():
                    found.append(message.body)
                if len(found) == 1000:
                    break
        assert found == numbered(1000)
        assert (await queue.declare()).message_count == 0


async def test_an_unroutable_message_is_an_error_or_comes_back(broker: Broker) -> None:
    async with opened(broker, on_return_raises=True) as channel:
        with pytest.raises(aio_pika.exceptions.PublishError) as caught:
            await channel.default_exchange.publish(Message(b"m"), "no.such.queue")
        assert "NO_ROUTE" in str(caught.value)
        assert await channel.default_exchange.publish(Message(b"m"), "no.such.queue", mandatory=False) is not None


async def test_a_full_queue_nacks_and_a_failed_task_dead_letters(broker: Broker, names: Names) -> None:
    """QP-08"""
    async with opened(broker) as channel:
        dead = await channel.declare_queue(names.queue("dead"))
        arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
        queue = await channel.declare_queue(names.queue(), arguments=arguments)
        await publish(channel, queue, b"1", b"2")
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await publish(channel, queue, b"3")
        message = await queue.get()
        with pytest.raises(ZeroDivisionError):
            async with message.process():
                raise ZeroDivisionError
        letter = await next_of(dead)
        assert (letter.body, letter.headers["x-death"][0]["reason"]) == (b"1", "rejected")
        assert letter.headers["x-death"][0]["count"] == 1


async def next_of(queue: Any) -> Any:
    """The next message, whenever it comes."""
    async with queue.iterator(timeout=SECONDS_MAX, no_ack=True) as messages:
        return await anext(messages)


async def test_rejected_and_nacked_messages_come_back_redelivered(broker: Broker, names: Names) -> None:
    async with opened(broker) as channel:
        queue = await channel.declare_queue(names.queue())
        await publish(channel, queue, *numbered(4))
        unacked = [await queue.get() for _ in range(3)]
        await unacked[0].reject(requeue=True)
        await unacked[2].nack(requeue=True)
        await unacked[1].ack()
        again = [await queue.get(no_ack=True) for _ in range(3)]
        assert [(each.body, each.redelivered) for each in again] == [(b"0", True), (b"2", True), (b"3", False)]


@pytest.mark.parametrize(("is_global", "taken"), [(False, 4), (True, 2)])
async def test_a_prefetch_limits_each_consumer_and_a_global_one_the_channel(
    broker: Broker, names: Names, is_global: bool, taken: int
) -> None:
    async with opened(broker) as channel:
        await channel.set_qos(prefetch_count=2, global_=is_global)
        queue = await channel.declare_queue(names.queue())
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        for _ in range(2):
            await queue.consume(arrived.put)
        await publish(channel, queue, *numbered(6))
        messages = [await asyncio.wait_for(arrived.get(), SECONDS_MAX) for _ in range(taken)]
        assert (await queue.declare()).message_count == 6 - taken
        await messages[0].ack()
        assert (await asyncio.wait_for(arrived.get(), SECONDS_MAX)).body == b"%d" % taken


async def test_a_consumer_is_notified_when_its_queue_is_deleted(broker: Broker, names: Names) -> None:
    async with opened(broker) as channel, opened(broker) as other:
        queue = await channel.declare_queue(names.queue(), robust=False)
        result: asyncio.Queue[Any] = asyncio.Queue()
        (await channel.get_underlay_channel()).on_consumer_cancel_callbacks.add(result.put)
        tag = await queue.consume(ignore)
        await other.queue_delete(queue.name)
        assert (await asyncio.wait_for(result.get(), SECONDS_MAX)).consumer_tag == tag


async def test_queues_of_every_lifetime(broker: Broker, names: Names) -> None:
    async with await aio_pika.connect(broker.url) as connection, opened(broker) as other:
        channel = await connection.channel()
        named = await channel.declare_queue("", exclusive=True)
        assert named.name.startswith("amq.gen-")
        with pytest.raises(aiormq.exceptions.ChannelLockedResource, match="RESOURCE_LOCKED"):
            await other.declare_queue(named.name, passive=True)
        brief = await channel.declare_queue(names.queue("brief"), auto_delete=True)
        await brief.cancel(await brief.consume(ignore))
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity, match="NOT_FOUND - no queue"):
            await channel.declare_queue(brief.name, passive=True)


async def test_deleting_is_conditional_by_default(broker: Broker, names: Names) -> None:
    """aio-pika's `delete` means if-unused and if-empty."""
    async with opened(broker) as channel:
        queue = await channel.declare_queue(names.queue())
        await publish(channel, queue, b"a", b"b")
        with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed, match="not empty"):
            await queue.delete()
    async with opened(broker) as channel:
        again = await channel.declare_queue(queue.name)
        assert (await again.purge()).message_count == 2
        assert (await again.delete()).message_count == 0


async def test_an_inequivalent_declare_is_refused_and_the_connection_lives_on(broker: Broker, names: Names) -> None:
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(names.queue(), durable=True)
        with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed, match="inequivalent arg 'durable'"):
            await channel.declare_queue(names.queues[0], durable=False)
        async with connection.channel() as again:
            assert (await again.get_queue(names.queues[0])).name == names.queues[0]


async def test_messages_and_queues_expire(broker: Broker, names: Names) -> None:
    """QP-07"""
    async with opened(broker) as channel:
        late = await channel.declare_queue(names.queue("late"))
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": late.name}
        queue = await channel.declare_queue(names.queue(), arguments=arguments)
        await publish(channel, queue, b"m", expiration=datetime.timedelta(milliseconds=20))
        letter = await next_of(late)
        [death] = letter.headers["x-death"]
        assert (death["reason"], death["original-expiration"], letter.expiration) == ("expired", "20", None)


async def test_priorities_come_first(broker: Broker, names: Names) -> None:
    async with opened(broker) as channel:
        queue = await channel.declare_queue(names.queue(), arguments={"x-max-priority": 3})
        for priority in (0, 2, 1, 3):
            await publish(channel, queue, b"%d" % priority, priority=priority)
        assert await drained(queue) == [b"3", b"2", b"1", b"0"]


async def test_properties_and_headers_come_back(broker: Broker, names: Names) -> None:
    headers = {
        "real": 1.5,
        "decimal": decimal.Decimal("12.34"),
        "time": datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC),
        "large": 2**40,
        "list": [1, "two", True, None],
        "table": {"in": {"side": bytearray(b"\x00\xff")}},
    }
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": aio_pika.DeliveryMode.PERSISTENT,
        "priority": 4,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": 3600,
        "message_id": "m",
        "timestamp": datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC),
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    async with opened(broker) as channel:
        queue = await channel.declare_queue(names.queue())
        await publish(channel, queue, b"x" * (1 << 20), headers=headers, **properties)
        fetched = await queue.get(no_ack=True)
        assert fetched.body == b"x" * (1 << 20)
        assert {name: getattr(fetched, name) for name in properties} == properties
        assert {name: fetched.headers[name] for name in headers} == headers


async def test_a_call_finds_its_answer(broker: Broker, names: Names) -> None:
    """Server-named exclusive queues, correlation ids and replies, as the pattern RPC uses them."""
    name = names.queue("double")

    async def double(*, number: int) -> int:
        return 2 * number

    async with opened(broker) as serving, opened(broker) as calling:
        server = await RPC.create(serving)
        await server.register(name, double, auto_delete=True)
        client = await RPC.create(calling)
        answers = await asyncio.gather(*(client.call(name, kwargs={"number": number}) for number in range(20)))
        assert answers == [2 * number for number in range(20)]
        await client.close()
        await server.close()


async def test_a_master_hands_tasks_to_its_workers(broker: Broker, names: Names) -> None:
    name, done = names.queue("work"), asyncio.Event()
    seen: list[int] = []

    async def work(*, number: int) -> None:
        seen.append(number)
        if len(seen) == 10:
            done.set()

    async with opened(broker) as channel:
        master = Master(channel)
        worker = await master.create_worker(name, work, auto_delete=True)
        for number in range(10):
            await master.create_task(name, kwargs={"number": number})
        await asyncio.wait_for(done.wait(), SECONDS_MAX)
        await worker.close()
    assert sorted(seen) == list(range(10))


async def test_transactions_are_not_there_yet(broker: Broker, names: Names) -> None:
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        if broker.is_warren:
            with pytest.raises(aiormq.exceptions.ConnectionNotImplemented):
                await channel.transaction().select()
            return
        queue = await channel.declare_queue(names.queue())
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"m"), queue.name)
        assert await drained(queue) == [b"m"]


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("amqp://guest:wrong@{host}:{port}/%2F", "ProbableAuthenticationError"),
        ("amqp://guest:guest@{host}:{port}/nowhere", "InvalidFrameError"),  # a close where aiormq wants open-ok
    ],
)
async def test_unknown_users_are_refused_with_a_reason(broker: Broker, url: str, error: str) -> None:
    with pytest.raises(getattr(aiormq.exceptions, error)):
        await aio_pika.connect(url.format(host=broker.host, port=broker.port))
