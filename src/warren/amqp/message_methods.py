"""Methods of the classes basic (60), confirm (85) and tx (90). Nack and confirms are RabbitMQ's; cancel goes both ways
since a server may take a consumer away.
"""

from __future__ import annotations

from dataclasses import field

from warren.amqp.method_table import Bit, FieldTable, LongInt, LongLong, Method, Sender, ShortInt, ShortString, method


@method(60, 10, sender=Sender.CLIENT, is_synchronous=True)
class BasicQos(Method):
    prefetch_size: LongInt = 0
    prefetch_count: ShortInt = 0
    is_global: Bit = False


@method(60, 11, sender=Sender.SERVER)
class BasicQosOk(Method):
    pass


@method(60, 20, sender=Sender.CLIENT, is_synchronous=True)
class BasicConsume(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    consumer_tag: ShortString = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(60, 21, sender=Sender.SERVER)
class BasicConsumeOk(Method):
    consumer_tag: ShortString = ""


@method(60, 30, sender=Sender.BOTH, is_synchronous=True)
class BasicCancel(Method):
    consumer_tag: ShortString = ""
    no_wait: Bit = False


@method(60, 31, sender=Sender.BOTH)
class BasicCancelOk(Method):
    consumer_tag: ShortString = ""


@method(60, 40, sender=Sender.CLIENT, has_content=True)
class BasicPublish(Method):
    ticket: ShortInt = 0
    exchange: ShortString = ""
    routing_key: ShortString = ""
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50, sender=Sender.SERVER, has_content=True)
class BasicReturn(Method):
    reply_code: ShortInt = 0
    reply_text: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""


@method(60, 60, sender=Sender.SERVER, has_content=True)
class BasicDeliver(Method):
    consumer_tag: ShortString = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""


@method(60, 70, sender=Sender.CLIENT, is_synchronous=True)
class BasicGet(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    no_ack: Bit = False


@method(60, 71, sender=Sender.SERVER, has_content=True)
class BasicGetOk(Method):
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortString = ""
    routing_key: ShortString = ""
    message_count: LongInt = 0


@method(60, 72, sender=Sender.SERVER)
class BasicGetEmpty(Method):
    cluster_id: ShortString = ""


@method(60, 80, sender=Sender.BOTH)
class BasicAck(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False


@method(60, 90, sender=Sender.CLIENT)
class BasicReject(Method):
    delivery_tag: LongLong = 0
    requeue: Bit = True


@method(60, 100, sender=Sender.CLIENT)
class BasicRecoverAsync(Method):
    requeue: Bit = False


@method(60, 110, sender=Sender.CLIENT, is_synchronous=True)
class BasicRecover(Method):
    requeue: Bit = False


@method(60, 111, sender=Sender.SERVER)
class BasicRecoverOk(Method):
    pass


@method(60, 120, sender=Sender.BOTH)
class BasicNack(Method):
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


@method(85, 10, sender=Sender.CLIENT, is_synchronous=True)
class ConfirmSelect(Method):
    no_wait: Bit = False


@method(85, 11, sender=Sender.SERVER)
class ConfirmSelectOk(Method):
    pass


@method(90, 10, sender=Sender.CLIENT, is_synchronous=True)
class TxSelect(Method):
    pass


@method(90, 11, sender=Sender.SERVER)
class TxSelectOk(Method):
    pass


@method(90, 20, sender=Sender.CLIENT, is_synchronous=True)
class TxCommit(Method):
    pass


@method(90, 21, sender=Sender.SERVER)
class TxCommitOk(Method):
    pass


@method(90, 30, sender=Sender.CLIENT, is_synchronous=True)
class TxRollback(Method):
    pass


@method(90, 31, sender=Sender.SERVER)
class TxRollbackOk(Method):
    pass
