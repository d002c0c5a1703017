"""basic.*: consumers come and go, single messages are got, prefetch is set, unsettled ones are recovered.

Publishes and acknowledgements do not pass here: they come in runs (channel.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    Method,
)
from warren.base.errors import Damage, WarrenError
from warren.broker.auth.permissions import AccessRefused, NameRole, Operation, authorize
from warren.broker.consumers import InUse
from warren.broker.errors import UnknownQueue
from warren.broker.queue_arguments import is_integer, type_of
from warren.broker.queue_handle import QueueHandle
from warren.broker.request_batch import GetResult, Settlement
from warren.server.channel import ServerChannel
from warren.server.consumer import DeliverySource, ServerConsumer, contents_of


def handle(channel: ServerChannel, method: Method) -> None:
    match method:
        case BasicConsume():
            _with_queue(channel, method, partial(_consume, channel, method))
        case BasicCancel():
            _cancel(channel, method)
        case BasicGet():
            _with_queue(channel, method, partial(_get, channel, method))
        case BasicQos():
            _qos(channel, method)
        case BasicRecover() | BasicRecoverAsync():
            _recover(channel, method)
        case _:
            raise _refusal(ReplyCode.NOT_IMPLEMENTED, f"{method.SPEC.name} is not there", method)


def _with_queue(channel: ServerChannel, asked: BasicConsume | BasicGet, then: Callable[[], None]) -> None:
    """A queue that nobody has used yet is started first, or found not to be there: that takes the disk."""
    vhost, name = channel.connection.served.vhost, asked.queue or channel.client.last_queue
    if not name or vhost.started_queue(name) is not None:
        then()
        return

    def start() -> None:
        with suppress(UnknownQueue):
            vhost.find_queue(name)

    channel.connection.offload(start, lambda _: then() if channel.is_open else None, channel.number)


def _consume(channel: ServerChannel, asked: BasicConsume) -> None:
    channel.run_pending_gets()
    connection = channel.connection
    handle = _queue(channel, asked.queue, Operation.BASIC_CONSUME, asked)
    tag = asked.consumer_tag or f"amq.ctag-{connection.server.environment.rng.id64():016x}"
    if tag in channel.consumers:
        raise _refusal(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'", asked)
    priority = asked.arguments.get("x-priority", 0)
    if not is_integer(priority):
        where = f"for queue '{handle.name}' in vhost '{channel.client.access.vhost}'"
        what = f"invalid arg 'x-priority' {where}: \"expected integer, got {type_of(priority)}\""
        raise _refusal(ReplyCode.PRECONDITION_FAILED, what, asked)
    cancelled = partial(connection.server.cancelled, connection)
    consumer = ServerConsumer(channel, handle, tag, asked.no_ack, asked.exclusive, priority, cancelled)
    served = connection.served
    with handle.lock:
        if handle.queue is None:
            raise _not_found(channel, handle.name, asked)
        try:
            handle.consumers.add(consumer)
        except InUse as error:
            where = f"queue '{handle.name}' in vhost '{channel.client.access.vhost}' in exclusive use"
            raise _refusal(ReplyCode.ACCESS_REFUSED, where, asked) from error
        handle.queue.use.note()
    channel.consumers[tag] = consumer
    if not asked.no_wait:
        connection.say(channel.number, BasicConsumeOk(tag))
    served.batch.schedule_delivery(handle)


def _cancel(channel: ServerChannel, asked: BasicCancel) -> None:
    consumer, connection = channel.consumers.get(asked.consumer_tag), channel.connection
    if consumer is not None and channel.leave(consumer):  # a queue that goes with it has gone when it is answered
        gone = partial(connection.served.declarations.consumer_removed, consumer.handle.id)
        connection.offload(gone, lambda _: _left(channel, asked), channel.number)
    else:
        _left(channel, asked)


def _left(channel: ServerChannel, asked: BasicCancel) -> None:
    if channel.is_open and not asked.no_wait:
        channel.connection.say(channel.number, BasicCancelOk(asked.consumer_tag))


def _get(channel: ServerChannel, asked: BasicGet) -> None:
    handle = _queue(channel, asked.queue, Operation.BASIC_GET, asked)
    channel.pending_gets += 1
    channel.connection.served.batch.get(handle, asked.no_ack, partial(_got, channel, handle, asked))


def _got(channel: ServerChannel, handle: QueueHandle, asked: BasicGet, got: GetResult | WarrenError) -> None:
    """Called by the batch, which a reply that fails must not disturb."""
    channel.pending_gets -= 1
    if channel.is_open:
        try:
            _reply(channel, handle, asked, got)
        except Exception as error:
            channel.connection.fail_soon(error)
    elif isinstance(got, GetResult) and not asked.no_ack:  # closed meanwhile: the message is ready again
        for each in got.fetched:
            channel.connection.served.batch.settle(handle, Settlement.REQUEUE, got.incarnation, each.tags)


def _reply(channel: ServerChannel, handle: QueueHandle, asked: BasicGet, got: GetResult | WarrenError) -> None:
    connection, counts = channel.connection, channel.connection.counts
    if isinstance(got, WarrenError):
        code = ReplyCode.INTERNAL_ERROR if isinstance(got, Damage) else ReplyCode.NOT_FOUND
        connection.refuse(channel.number, _refusal(code, got.what, asked))
        return
    if not got.fetched:
        counts.got_empty += 1
        connection.say(channel.number, BasicGetEmpty())
        return
    [fetched] = got.fetched
    tag = channel.next_tags(1)
    if asked.no_ack:
        counts.got_auto_ack += 1
    else:
        counts.got_manual_ack += 1
        channel.unacked.add(tag, 1, fetched.tag, DeliverySource(handle, got.incarnation, None))
    counts.redelivered += fetched.is_redelivered
    origin = fetched.slice.run.origin
    answer = BasicGetOk(tag, fetched.is_redelivered, origin.exchange, origin.routing_key, got.left)
    [content] = contents_of(fetched.slice, channel.number, connection.frame_max)
    connection.send_content(channel.number, answer, content)


def _qos(channel: ServerChannel, asked: BasicQos) -> None:
    if asked.prefetch_size:
        raise _refusal(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({asked.prefetch_size})", asked)
    channel.set_prefetch(asked.prefetch_count, asked.is_global)
    channel.connection.say(channel.number, BasicQosOk())


def _recover(channel: ServerChannel, asked: BasicRecover | BasicRecoverAsync) -> None:
    if not asked.requeue:
        raise _refusal(ReplyCode.NOT_IMPLEMENTED, "requeue=false", asked)
    channel.run_pending_gets()
    channel.recover()
    if isinstance(asked, BasicRecover):
        channel.connection.say(channel.number, BasicRecoverOk())


def _queue(channel: ServerChannel, name: str, operation: Operation, asked: Method) -> QueueHandle:
    """The queue that is meant, if this client may read it."""
    client, vhost = channel.client, channel.connection.served.vhost
    name = name or client.last_queue
    if not name:
        raise _refusal(ReplyCode.NOT_FOUND, "no previously declared queue", asked)
    try:
        authorize(client.access, operation, {NameRole.QUEUE: name})
    except AccessRefused as error:
        raise _refusal(ReplyCode.ACCESS_REFUSED, error.what, asked) from error
    handle = vhost.started_queue(name)
    if handle is None:
        raise _not_found(channel, name, asked)
    channel.connection.served.declarations.check_owner(client, handle)
    return handle


def _not_found(channel: ServerChannel, name: str, asked: Method) -> PeerError:
    return _refusal(ReplyCode.NOT_FOUND, f"no queue '{name}' in vhost '{channel.client.access.vhost}'", asked)


def _refusal(code: ReplyCode, explanation: str, asked: Method) -> PeerError:
    return PeerError(code, explanation, asked.SPEC.class_id, asked.SPEC.method_id)
