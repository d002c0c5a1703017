"""Methods of the classes connection (10) and channel (20): the standard's, and RabbitMQ's blocked, unblocked and
update-secret.
"""

from __future__ import annotations

from dataclasses import field

from warren.amqp.method_table import (
    Bit,
    FieldTable,
    LongInt,
    LongString,
    Method,
    Octet,
    Sender,
    ShortInt,
    ShortString,
    method,
)


@method(10, 10, sender=Sender.SERVER, is_synchronous=True)
class ConnectionStart(Method):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: FieldTable = field(default_factory=dict)
    mechanisms: LongString = b"PLAIN"
    locales: LongString = b"en_US"


@method(10, 11, sender=Sender.CLIENT)
class ConnectionStartOk(Method):
    client_properties: FieldTable = field(default_factory=dict)
    mechanism: ShortString = "PLAIN"
    response: LongString = b""
    locale: ShortString = "en_US"


@method(10, 20, sender=Sender.SERVER, is_synchronous=True)
class ConnectionSecure(Method):
    challenge: LongString = b""


@method(10, 21, sender=Sender.CLIENT)
class ConnectionSecureOk(Method):
    response: LongString = b""


@method(10, 30, sender=Sender.SERVER, is_synchronous=True)
class ConnectionTune(Method):
    channel_max: ShortInt = 0
    frame_max: LongInt = 0
    heartbeat: ShortInt = 0


@method(10, 31, sender=Sender.CLIENT)
class ConnectionTuneOk(Method):
    channel_max: ShortInt = 0
    frame_max: LongInt = 0
    heartbeat: ShortInt = 0


@method(10, 40, sender=Sender.CLIENT, is_synchronous=True)
class ConnectionOpen(Method):
    virtual_host: ShortString = "/"
    capabilities: ShortString = ""
    insist: Bit = False


@method(10, 41, sender=Sender.SERVER)
class ConnectionOpenOk(Method):
    known_hosts: ShortString = ""


@method(10, 50, sender=Sender.BOTH, is_synchronous=True)
class ConnectionClose(Method):
    reply_code: ShortInt = 0
    reply_text: ShortString = ""
    class_id: ShortInt = 0
    method_id: ShortInt = 0


@method(10, 51, sender=Sender.BOTH)
class ConnectionCloseOk(Method):
    pass


@method(10, 60, sender=Sender.SERVER)
class ConnectionBlocked(Method):
    reason: ShortString = ""


@method(10, 61, sender=Sender.SERVER)
class ConnectionUnblocked(Method):
    pass


@method(10, 70, sender=Sender.CLIENT, is_synchronous=True)
class ConnectionUpdateSecret(Method):
    new_secret: LongString = b""
    reason: ShortString = ""


@method(10, 71, sender=Sender.SERVER)
class ConnectionUpdateSecretOk(Method):
    pass


@method(20, 10, sender=Sender.CLIENT, is_synchronous=True)
class ChannelOpen(Method):
    out_of_band: ShortString = ""


@method(20, 11, sender=Sender.SERVER)
class ChannelOpenOk(Method):
    channel_id: LongString = b""


@method(20, 20, sender=Sender.BOTH, is_synchronous=True)
class ChannelFlow(Method):
    active: Bit = False


@method(20, 21, sender=Sender.BOTH)
class ChannelFlowOk(Method):
    active: Bit = False


@method(20, 40, sender=Sender.BOTH, is_synchronous=True)
class ChannelClose(Method):
    reply_code: ShortInt = 0
    reply_text: ShortString = ""
    class_id: ShortInt = 0
    method_id: ShortInt = 0


@method(20, 41, sender=Sender.BOTH)
class ChannelCloseOk(Method):
    pass
