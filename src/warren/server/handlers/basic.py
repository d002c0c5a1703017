"""basic.*: consume, cancel, get, qos and recover.

Publishes and acknowledgements do not pass here: they are handled in runs (channel.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from warren.amqp.content import DIRECT_REPLY_TO
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
from warren.server.consumer import DeliverySource, ServerConsumer, contents_of, with_delivery_count
from warren.server.event_lines import QUEUE_LOG, client_facts


def handle(channel: ServerChannel, method: Method) -> None:
    match method:
        case BasicConsume() if method.queue == DIRECT_REPLY_TO:
            _consume_replies(channel, method)
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
            raise _refusal(ReplyCode.NOT_IMPLEMENTED, f"{method.SPEC.name} is not implemented", method)


def _with_queue(channel: ServerChannel, method: BasicConsume | BasicGet, then: Callable[[], None]) -> None:
    """Start a queue that was not used yet, or find that it does not exist: that reads from disk."""
    vhost, name = channel.connection.served.vhost, method.queue or channel.client.last_queue
    if not name or vhost.started_queue(name) is not None:
        then()
        return

    def start() -> None:
        with suppress(UnknownQueue):
            vhost.find_queue(name)

    channel.connection.offload(start, lambda _: then() if channel.is_open else None, channel.number)


def _consume(channel: ServerChannel, method: BasicConsume) -> None:
    channel.run_pending_gets()
    connection = channel.connection
    handle = _queue(channel, method.queue, Operation.BASIC_CONSUME, method)
    tag = _new_tag(channel, method)
    priority = method.arguments.get("x-priority", 0)
    if not is_integer(priority):
        where = f"for queue '{handle.name}' in vhost '{channel.client.access.vhost}'"
        what = f"invalid arg 'x-priority' {where}: \"expected integer, got {type_of(priority)}\""
        raise _refusal(ReplyCode.PRECONDITION_FAILED, what, method)
    cancelled = partial(connection.server.cancelled, connection)
    flags = method.no_ack, method.exclusive
    consumer = ServerConsumer(channel, handle, tag, *flags, priority, cancelled, method.arguments)
    served = connection.served
    with handle.lock:
        if handle.queue is None:
            raise _not_found(channel, handle.name, method)
        try:
            handle.consumers.add(consumer)
        except InUse as error:
            where = f"queue '{handle.name}' in vhost '{channel.client.access.vhost}' in exclusive use"
            raise _refusal(ReplyCode.ACCESS_REFUSED, where, method) from error
        handle.queue.use.note()
    channel.consumers[tag] = consumer
    _log_consumer("consumer added", consumer)
    if not method.no_wait:
        connection.send_method(channel.number, BasicConsumeOk(tag))
    served.batch.schedule_delivery(handle)


def _new_tag(channel: ServerChannel, method: BasicConsume) -> str:
    tag = method.consumer_tag or f"amq.ctag-{channel.connection.server.environment.rng.id64():016x}"
    if tag in channel.consumers:
        raise _refusal(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'", method)
    return tag


def _consume_replies(channel: ServerChannel, method: BasicConsume) -> None:
    """The pseudo-queue of direct replies belongs to no vhost: its consumer needs no permission."""
    tag = _new_tag(channel, method)
    if not method.no_ack:
        raise _refusal(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge", method)
    if channel.reply_consumer is not None:
        raise _refusal(ReplyCode.PRECONDITION_FAILED, "reply consumer already set", method)
    channel.set_reply_consumer(tag)
    if not method.no_wait:
        channel.connection.send_method(channel.number, BasicConsumeOk(tag))


def _cancel(channel: ServerChannel, method: BasicCancel) -> None:
    consumer, connection = channel.consumers.get(method.consumer_tag), channel.connection
    if consumer is not None:
        _log_consumer("consumer cancelled", consumer)
    if channel.reply_consumer is not None and channel.reply_consumer.tag == method.consumer_tag:
        channel.remove_reply_consumer()
    if consumer is not None and channel.remove_consumer(consumer):  # an auto-delete queue is deleted before the reply
        gone = partial(connection.served.declarations.consumer_removed, consumer.handle.id)
        connection.offload(gone, lambda _: _send_cancel_ok(channel, method), channel.number)
    else:
        _send_cancel_ok(channel, method)


def _log_consumer(event: str, consumer: ServerConsumer) -> None:
    channel = consumer.channel
    facts = {"queue": consumer.handle.name, "tag": consumer.tag, "channel": channel.number}
    QUEUE_LOG.debug(event, extra={"facts": {**facts, **client_facts(channel.connection)}})


def _send_cancel_ok(channel: ServerChannel, method: BasicCancel) -> None:
    if channel.is_open and not method.no_wait:
        channel.connection.send_method(channel.number, BasicCancelOk(method.consumer_tag))


def _get(channel: ServerChannel, method: BasicGet) -> None:
    handle = _queue(channel, method.queue, Operation.BASIC_GET, method)
    channel.pending_gets += 1
    channel.connection.served.batch.get(handle, method.no_ack, partial(_on_get_result, channel, handle, method))


def _on_get_result(
    channel: ServerChannel, handle: QueueHandle, method: BasicGet, result: GetResult | WarrenError
) -> None:
    """Called by the batch, which must not be affected by a failing reply."""
    channel.pending_gets -= 1
    if channel.is_open:
        try:
            _reply(channel, handle, method, result)
        except Exception as error:
            channel.connection.fail_soon(error)
    elif isinstance(result, GetResult) and not method.no_ack:  # closed meanwhile: the message is requeued
        for each in result.fetched:
            channel.connection.served.batch.settle(handle, Settlement.REQUEUE, result.incarnation, each.tags)


def _reply(channel: ServerChannel, handle: QueueHandle, method: BasicGet, result: GetResult | WarrenError) -> None:
    connection, counts = channel.connection, channel.connection.counts
    if isinstance(result, WarrenError):
        code = ReplyCode.INTERNAL_ERROR if isinstance(result, Damage) else ReplyCode.NOT_FOUND
        connection.refuse(channel.number, _refusal(code, result.what, method))
        return
    if not result.fetched:
        counts.got_empty += 1
        handle.counts.add_fetched(0, method.no_ack, False)
        connection.send_method(channel.number, BasicGetEmpty())
        return
    [fetched] = result.fetched
    tag = channel.next_tags(1)
    if method.no_ack:
        counts.got_auto_ack += 1
    else:
        counts.got_manual_ack += 1
        channel.unacked.add(tag, 1, fetched.tag, DeliverySource(handle, result.incarnation, None))
    counts.redelivered += fetched.is_redelivered
    handle.counts.add_fetched(1, method.no_ack, fetched.is_redelivered)
    origin = fetched.slice.run.origin
    answer = BasicGetOk(tag, fetched.is_redelivered, origin.exchange, origin.routing_key, result.remaining)
    [content] = contents_of(fetched.slice, channel.number, connection.frame_max)
    if result.requeues is not None:  # also 0, as in RabbitMQ; a consumer gets the header with redeliveries only
        content = with_delivery_count(content, result.requeues)
    connection.send_content(channel.number, answer, content)


def _qos(channel: ServerChannel, method: BasicQos) -> None:
    if method.prefetch_size:
        raise _refusal(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})", method)
    channel.set_prefetch(method.prefetch_count, method.is_global)
    channel.connection.send_method(channel.number, BasicQosOk())


def _recover(channel: ServerChannel, method: BasicRecover | BasicRecoverAsync) -> None:
    if not method.requeue:
        raise _refusal(ReplyCode.NOT_IMPLEMENTED, "requeue=false", method)
    channel.run_pending_gets()
    channel.recover()
    if isinstance(method, BasicRecover):
        channel.connection.send_method(channel.number, BasicRecoverOk())


def _queue(channel: ServerChannel, name: str, operation: Operation, method: Method) -> QueueHandle:
    """The named or last declared queue, if this client may read it."""
    client, vhost = channel.client, channel.connection.served.vhost
    name = name or client.last_queue
    if not name:
        raise _refusal(ReplyCode.NOT_FOUND, "no previously declared queue", method)
    try:
        authorize(client.access, operation, {NameRole.QUEUE: name})
    except AccessRefused as error:
        raise _refusal(ReplyCode.ACCESS_REFUSED, error.what, method) from error
    handle = vhost.started_queue(name)
    if handle is None:
        raise _not_found(channel, name, method)
    channel.connection.served.declarations.check_owner(client, handle)
    return handle


def _not_found(channel: ServerChannel, name: str, method: Method) -> PeerError:
    return _refusal(ReplyCode.NOT_FOUND, f"no queue '{name}' in vhost '{channel.client.access.vhost}'", method)


def _refusal(code: ReplyCode, explanation: str, method: Method) -> PeerError:
    return PeerError(code, explanation, method.SPEC.class_id, method.SPEC.method_id)
