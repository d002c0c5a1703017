"""The transfer of `warren move`: from consumers at the source to confirmed publishes at the target.

    source ── basic.deliver n ──▶ publish n, mandatory ──▶ target
    source ◀── basic.ack ≤ n ──── ConfirmWindow ◀── confirm n ── target

One channel on each side, opened together: the source numbers its deliveries from 1, the target its confirms from 1, and
every delivery is published at once, in order. So delivery n is publish n, and a confirm is an ack. Acks cover the
confirmed prefix: after a failure the source delivers the rest again, in its order.

Every failure has one recovery: both connections are closed, opened again, and the queues are consumed anew. A message
that the source calls redelivered may be at the target already; it gets the header `x-warren-moved` with the source
queue, and is counted. Other messages are published with the bytes of their properties as they came.

Invariants
* A delivery is acknowledged only behind the confirm of its publish.
* A returned message (no such queue at the target) ends the move before its confirm is read.
* Copies go to the one queue: a message with the header CC would be routed by its further keys too, so it is published
  to a fanout exchange of the transfer that is bound to this queue only.
* Bodies are in memory only until they are written; entries without confirm are at most prefetch × queues.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from warren.amqp import content, frames, methods
from warren.amqp.errors import PeerError, ReplyCode
from warren.base.errors import Refused
from warren.cli.move_client import AmqpClient, BrokerLost, BrokerUri, ChannelRefused, Received, open_client

MOVED_HEADER = "x-warren-moved"
CHANNEL = 1
POLL_SECONDS = 0.5
BACK_OFF_SECONDS = 0.1
BACK_OFF_SECONDS_MAX = 5.0
_CC = b"\x02CCA"  # the header CC with an array, wherever it is: a false match costs an exchange
_HEAD_BYTES = content.HEADER_HEAD.size


@dataclass(slots=True)
class MovedQueue:
    """A queue, and what was moved of it by this command."""

    source: str
    target: str
    moved: int = 0
    possible_repeats: int = 0
    waiting: int = 0  # ready at the source when the transfer started
    is_found: bool = False  # both brokers have it

    def start(self, waiting: int) -> None:
        self.waiting = waiting

    def found(self) -> None:
        self.is_found = True

    def count_moved(self, is_repeat: bool) -> None:
        self.moved += 1
        self.possible_repeats += is_repeat


@dataclass(frozen=True, slots=True)
class MovePlan:
    source: BrokerUri
    target: BrokerUri
    queues: Sequence[MovedQueue]
    prefetch: int
    has_declare: bool
    has_follow: bool
    retry_seconds: float


class ConfirmWindow:
    """Publishes without a confirm, in order."""

    def __init__(self) -> None:
        self.acked = 0  # all numbers up to this are confirmed
        self.published = 0
        self._confirmed: set[int] = set()  # beyond `acked`
        self._entries: deque[tuple[MovedQueue, bool]] = deque()

    @property
    def is_empty(self) -> bool:
        return self.acked == self.published

    def add(self, queue: MovedQueue, is_repeat: bool) -> int:
        self._entries.append((queue, is_repeat))
        self.published += 1
        return self.published

    def queue_of(self, number: int) -> MovedQueue:
        return self._entries[number - self.acked - 1][0]

    def has(self, number: int) -> bool:
        return self.acked < number <= self.published

    def confirm(self, number: int, is_multiple: bool) -> None:
        last = self.published if is_multiple and number == 0 else number
        if last > self.published:
            raise Refused(f"the target confirms message {number}, {self.published} were published")
        first = self.acked + 1 if is_multiple else last
        self._confirmed.update(range(max(first, self.acked + 1), last + 1))
        while self.acked + 1 in self._confirmed:
            self.acked += 1
            self._confirmed.remove(self.acked)
            queue, is_repeat = self._entries.popleft()
            queue.count_moved(is_repeat)


class MoveMonitor:
    """What the command and its transfers share: the request to stop, progress, events to print."""

    def __init__(self, on_progress: Callable[[], None], on_event: Callable[[str], None]) -> None:
        self.stop = asyncio.Event()
        self.on_progress = on_progress
        self.on_event = on_event
        self.progress_at = time.monotonic()  # of the last ack; followed queues that are empty count as progress

    def progressed(self) -> None:
        self.progress_at = time.monotonic()


async def move_queues(plan: MovePlan, monitor: MoveMonitor) -> None:
    """Move until the queues are empty, or until `stop`; connect again after a loss, for `retry_seconds` without any
    progress."""
    delay, progress_at = BACK_OFF_SECONDS, monitor.progress_at
    while not monitor.stop.is_set():
        try:
            async with AsyncExitStack() as connections:
                source = await open_client(plan.source)
                connections.push_async_callback(source.abandon)
                target = await open_client(plan.target)
                connections.push_async_callback(target.abandon)
                await Transfer(plan, source, target, monitor).run()
                return
        except BrokerLost as error:
            if monitor.progress_at > progress_at:
                delay, progress_at = BACK_OFF_SECONDS, monitor.progress_at
            if time.monotonic() + delay - progress_at > plan.retry_seconds:
                raise
            monitor.on_event(f"{error.what}; next attempt in {delay:g} seconds")
            with suppress(TimeoutError):
                await asyncio.wait_for(monitor.stop.wait(), delay)
            delay = min(2 * delay, BACK_OFF_SECONDS_MAX)


class Transfer:
    """One pair of connections, until everything is moved or one of them fails."""

    def __init__(self, plan: MovePlan, source: AmqpClient, target: AmqpClient, monitor: MoveMonitor) -> None:
        self._plan = plan
        self._source = source
        self._target = target
        self._monitor = monitor
        self._window = ConfirmWindow()
        self._consumed: Sequence[MovedQueue] = ()  # consumer tag n is queue n
        self._exchanges: dict[str, str] = {}  # of messages with CC, by target queue
        self._blocked = ""

    async def run(self) -> None:
        await self._open_channels()
        self._monitor.on_progress()
        await _until_first(self._deliver_all(), self._relay_confirms(), self._watch())
        await self._source.close()
        for exchange in self._exchanges.values():
            self._target.send(frames.method_frame(CHANNEL, methods.ExchangeDelete(exchange=exchange, no_wait=True)))
        with suppress(BrokerLost):  # every message is confirmed and acknowledged
            await self._target.close()

    # ------------------------------------------------------------------------------------------------------- set-up

    async def _open_channels(self) -> None:
        for client in (self._source, self._target):
            await client.call(CHANNEL, methods.ChannelOpen(), methods.ChannelOpenOk)
        for queue in self._plan.queues:
            try:
                await self._find(queue)
            except ChannelRefused as error:
                if error.code != ReplyCode.NOT_FOUND or not queue.is_found:
                    raise
                raise BrokerLost(f"{error.what}: the broker may not have recovered it yet") from error
            queue.found()
        await self._target.call(CHANNEL, methods.ConfirmSelect(), methods.ConfirmSelectOk)
        await self._source.call(CHANNEL, methods.BasicQos(prefetch_count=self._plan.prefetch), methods.BasicQosOk)

    async def _find(self, queue: MovedQueue) -> None:
        queue.start(await _message_count(self._source, queue.source))
        try:
            await _message_count(self._target, queue.target)
        except ChannelRefused as error:
            if error.code != ReplyCode.NOT_FOUND or not self._plan.has_declare:
                raise
            await self._target.call(CHANNEL, methods.ChannelOpen(), methods.ChannelOpenOk)
            declare = methods.QueueDeclare(queue=queue.target, durable=True)
            await self._target.call(CHANNEL, declare, methods.QueueDeclareOk)

    # ---------------------------------------------------------------------------------------------- source to target

    async def _deliver_all(self) -> None:
        """Queue by queue until each is empty; all at once if they are followed."""
        groups = (
            [self._plan.queues] if self._plan.has_follow else [[each] for each in self._plan.queues if each.waiting]
        )
        for queues in groups:
            if not self._monitor.stop.is_set():
                await self._deliver(queues)
        while not self._window.is_empty:
            await asyncio.sleep(POLL_SECONDS / 50)

    async def _deliver(self, queues: Sequence[MovedQueue]) -> None:
        self._consumed = queues
        for number, queue in enumerate(queues):
            consume = methods.BasicConsume(queue=queue.source, consumer_tag=str(number))
            self._source.send(frames.method_frame(CHANNEL, consume))
        is_ending = False
        running = len(queues)
        while running:
            arrived = await self._source.receive(POLL_SECONDS)
            for received in arrived:
                match received.method:
                    case methods.BasicDeliver() as delivery:
                        self._publish(delivery, received)
                    case methods.QueueDeclareOk() as answer:
                        is_current = answer.queue == queues[0].source
                        is_empty = not answer.message_count and self._window.is_empty
                        if is_current and is_empty and not self._plan.has_follow and not is_ending:
                            is_ending = self._cancel_consumers()
                    case methods.BasicCancelOk():
                        running -= 1
                    case methods.BasicCancel() as cancel:
                        name = queues[int(cancel.consumer_tag)].source
                        raise Refused(f"queue {name!r} was deleted at {self._source.name}")
            await self._target.drain()
            if self._monitor.stop.is_set() and not is_ending:
                is_ending = self._cancel_consumers()
            elif not arrived:
                self._poll_source()

    def _publish(self, delivery: methods.BasicDeliver, received: Received) -> None:
        queue = self._consumed[int(delivery.consumer_tag)]
        if self._window.add(queue, delivery.redelivered) != delivery.delivery_tag:
            raise Refused(f"{self._source.name} does not number its deliveries one by one")
        header = received.header
        if delivery.redelivered:
            header = _marked(header, queue)
        if len(header) > self._target.frame_max - frames.EMPTY_FRAME_BYTES:
            raise Refused(
                f"the headers of a message in queue {queue.source!r} have {len(header)} bytes, a frame of"
                f" {self._target.name} at most {self._target.frame_max}",
                "raise frame_max at the target",
            )
        exchange = self._fanout_of(queue) if _CC in header else ""
        publish = methods.BasicPublish(exchange=exchange, routing_key=queue.target, mandatory=True)
        self._target.send(
            frames.method_frame(CHANNEL, publish)
            + frames.write_frame(frames.HEADER, CHANNEL, header)
            + content.body_frames(received.body, CHANNEL, self._target.frame_max)
        )

    def _fanout_of(self, queue: MovedQueue) -> str:
        """Declared without a wait: an error closes the channel, before the publish."""
        exchange = self._exchanges.get(queue.target)
        if exchange is None:
            exchange = self._exchanges[queue.target] = f"warren.move.{secrets.token_hex(8)}"
            declare = methods.ExchangeDeclare(exchange=exchange, type="fanout", auto_delete=True, no_wait=True)
            bind = methods.QueueBind(queue=queue.target, exchange=exchange, no_wait=True)
            self._target.send(frames.method_frame(CHANNEL, declare) + frames.method_frame(CHANNEL, bind))
        return exchange

    def _cancel_consumers(self) -> bool:
        for number in range(len(self._consumed)):
            self._source.send(frames.method_frame(CHANNEL, methods.BasicCancel(str(number))))
        return True

    def _poll_source(self) -> None:
        """Query the length of the queue: it follows the deliveries and acks on this channel."""
        if self._window.is_empty and self._consumed and not self._plan.has_follow:
            declare = methods.QueueDeclare(queue=self._consumed[0].source, passive=True)
            self._source.send(frames.method_frame(CHANNEL, declare))

    # ---------------------------------------------------------------------------------------------- target to source

    async def _relay_confirms(self) -> None:
        window = self._window
        while True:
            before = window.acked
            for received in await self._target.receive():
                match received.method:
                    case methods.BasicAck() as confirm:
                        window.confirm(confirm.delivery_tag, confirm.multiple)
                    case methods.BasicReturn() as returned:
                        self._ack(before)
                        raise Refused(
                            f"{self._target.name} has no queue {returned.routing_key!r}: {returned.reply_text}",
                            "declare it, or use --declare; the message stays at the source",
                        )
                    case methods.BasicNack() as nack:
                        self._ack(before)
                        number = nack.delivery_tag
                        name = window.queue_of(number).target if window.has(number) else ""
                        raise Refused(
                            f"queue {name!r} at {self._target.name} did not accept a message",
                            "it is full (x-max-length with reject-publish), or failed; the message stays at the source",
                        )
                    case methods.ConnectionBlocked() as blocked:
                        self._blocked = blocked.reason
                        self._monitor.on_event(f"{self._target.name} blocks publishers: {blocked.reason}")
                    case methods.ConnectionUnblocked():
                        self._blocked = ""
            self._ack(before)

    def _ack(self, before: int) -> None:
        window = self._window
        if window.acked > before:
            self._monitor.progressed()
            self._source.send(frames.method_frame(CHANNEL, methods.BasicAck(window.acked, multiple=True)))
            self._monitor.on_progress()
            self._poll_source()

    async def _watch(self) -> None:
        """A connected broker can be lost too: a target that confirms nothing, a source that delivers to others only."""
        limit = self._plan.retry_seconds
        started_at = time.monotonic()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self._monitor.on_progress()
            if self._plan.has_follow and self._window.is_empty:
                self._monitor.progressed()
            if time.monotonic() - max(self._monitor.progress_at, started_at) <= limit:
                continue
            if self._window.is_empty:
                raise BrokerLost(
                    f"{self._source.name} has delivered nothing for {limit:g} seconds",
                    "is another consumer the single active one?",
                )
            reason = f" (blocked: {self._blocked})" if self._blocked else ""
            raise BrokerLost(f"{self._target.name} has confirmed nothing for {limit:g} seconds{reason}")


async def _message_count(client: AmqpClient, queue: str) -> int:
    declare = methods.QueueDeclare(queue=queue, passive=True)
    try:
        return (await client.call(CHANNEL, declare, methods.QueueDeclareOk)).message_count
    except ChannelRefused as error:
        raise ChannelRefused(f"queue {queue!r}: {error.what}", error.code) from error


def _marked(header: bytes, queue: MovedQueue) -> bytes:
    """The content header with the mark of a possible repeat."""
    try:
        properties = content.read_properties(header, _HEAD_BYTES, len(header))
    except PeerError as error:
        raise Refused(f"the properties of a message in queue {queue.source!r} cannot be read: {error}") from error
    mark = {"queue": queue.source, "redelivered": True}
    headers = {**(properties.headers or {}), MOVED_HEADER: mark}
    return header[:_HEAD_BYTES] + content.write_properties(replace(properties, headers=headers))


async def _until_first(*running: Any) -> None:
    """Until one of them returns or fails; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in running]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
