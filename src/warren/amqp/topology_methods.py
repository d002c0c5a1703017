"""Methods of the classes access (30), exchange (40) and queue (50). Binding exchanges to exchanges is RabbitMQ's; its
unbind-ok has the number 51, out of line and so kept.
"""

from __future__ import annotations

from dataclasses import field

from warren.amqp.method_table import Bit, FieldTable, LongInt, Method, Sender, ShortInt, ShortString, method


@method(30, 10, sender=Sender.CLIENT, is_synchronous=True)
class AccessRequest(Method):
    realm: ShortString = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@method(30, 11, sender=Sender.SERVER)
class AccessRequestOk(Method):
    ticket: ShortInt = 1


@method(40, 10, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeDeclare(Method):
    ticket: ShortInt = 0
    exchange: ShortString = ""
    type: ShortString = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(40, 11, sender=Sender.SERVER)
class ExchangeDeclareOk(Method):
    pass


@method(40, 20, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeDelete(Method):
    ticket: ShortInt = 0
    exchange: ShortString = ""
    if_unused: Bit = False
    no_wait: Bit = False


@method(40, 21, sender=Sender.SERVER)
class ExchangeDeleteOk(Method):
    pass


@method(40, 30, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeBind(Method):
    ticket: ShortInt = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(40, 31, sender=Sender.SERVER)
class ExchangeBindOk(Method):
    pass


@method(40, 40, sender=Sender.CLIENT, is_synchronous=True)
class ExchangeUnbind(Method):
    ticket: ShortInt = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(40, 51, sender=Sender.SERVER)
class ExchangeUnbindOk(Method):
    pass


@method(50, 10, sender=Sender.CLIENT, is_synchronous=True)
class QueueDeclare(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(50, 11, sender=Sender.SERVER)
class QueueDeclareOk(Method):
    queue: ShortString = ""
    message_count: LongInt = 0
    consumer_count: LongInt = 0


@method(50, 20, sender=Sender.CLIENT, is_synchronous=True)
class QueueBind(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: FieldTable = field(default_factory=dict)


@method(50, 21, sender=Sender.SERVER)
class QueueBindOk(Method):
    pass


@method(50, 30, sender=Sender.CLIENT, is_synchronous=True)
class QueuePurge(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    no_wait: Bit = False


@method(50, 31, sender=Sender.SERVER)
class QueuePurgeOk(Method):
    message_count: LongInt = 0


@method(50, 40, sender=Sender.CLIENT, is_synchronous=True)
class QueueDelete(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@method(50, 41, sender=Sender.SERVER)
class QueueDeleteOk(Method):
    message_count: LongInt = 0


@method(50, 50, sender=Sender.CLIENT, is_synchronous=True)
class QueueUnbind(Method):
    ticket: ShortInt = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    arguments: FieldTable = field(default_factory=dict)


@method(50, 51, sender=Sender.SERVER)
class QueueUnbindOk(Method):
    pass
