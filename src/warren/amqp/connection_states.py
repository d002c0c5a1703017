"""The life of a connection seen from the server, as tables.

    PREFACE ─header─▶ GREETING ─start─▶ STARTING ─start-ok─▶ AUTHENTICATING ─tune─▶ TUNING ─tune-ok─▶ OPENING
                                           SECURING ◀─secure─┘ ▲                                        │ open
                                               └───secure-ok───┘                                        ▼
    CLOSED ◀─close-ok─ CLOSE_SENT ◀─close─ RUNNING ◀──────────────open-ok────────────────────── AUTHORIZING
       ▲                                      │ close
       └────────────close-ok──── CLOSE_RECEIVED ◀┘

In GREETING, AUTHENTICATING and AUTHORIZING it is our turn: what the peer sends ahead waits unread until we have
answered, so that a server may take its time over a password. Whatever is not in the tables has one answer, by state:
before the peer is known it is dropped without a word, as RabbitMQ does and the standard asks.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from warren.amqp.connection_methods import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from warren.amqp.method_table import Method


class ConnectionState(Enum):
    PREFACE = auto()
    GREETING = auto()
    STARTING = auto()
    SECURING = auto()
    AUTHENTICATING = auto()
    TUNING = auto()
    OPENING = auto()
    AUTHORIZING = auto()
    RUNNING = auto()
    CLOSE_SENT = auto()
    CLOSE_RECEIVED = auto()
    CLOSED = auto()


_Moves = dict[type[Method], ConnectionState]

RECEIVED: Final[dict[ConnectionState, _Moves]] = {
    ConnectionState.PREFACE: {},
    ConnectionState.GREETING: {},
    ConnectionState.STARTING: {ConnectionStartOk: ConnectionState.AUTHENTICATING},
    ConnectionState.SECURING: {ConnectionSecureOk: ConnectionState.AUTHENTICATING},
    ConnectionState.AUTHENTICATING: {},
    ConnectionState.TUNING: {ConnectionTuneOk: ConnectionState.OPENING},
    ConnectionState.OPENING: {ConnectionOpen: ConnectionState.AUTHORIZING},
    ConnectionState.AUTHORIZING: {},
    ConnectionState.RUNNING: {
        ConnectionClose: ConnectionState.CLOSE_RECEIVED,
        ConnectionUpdateSecret: ConnectionState.RUNNING,
    },
    ConnectionState.CLOSE_SENT: {
        ConnectionClose: ConnectionState.CLOSE_SENT,
        ConnectionCloseOk: ConnectionState.CLOSED,
    },
    ConnectionState.CLOSE_RECEIVED: {},
    ConnectionState.CLOSED: {},
}

SENT: Final[dict[ConnectionState, _Moves]] = {
    ConnectionState.PREFACE: {},
    ConnectionState.GREETING: {ConnectionStart: ConnectionState.STARTING},
    ConnectionState.STARTING: {},
    ConnectionState.SECURING: {},
    ConnectionState.AUTHENTICATING: {
        ConnectionSecure: ConnectionState.SECURING,
        ConnectionTune: ConnectionState.TUNING,
        ConnectionClose: ConnectionState.CLOSE_SENT,
    },
    ConnectionState.TUNING: {ConnectionClose: ConnectionState.CLOSE_SENT},
    ConnectionState.OPENING: {ConnectionClose: ConnectionState.CLOSE_SENT},
    ConnectionState.AUTHORIZING: {
        ConnectionOpenOk: ConnectionState.RUNNING,
        ConnectionClose: ConnectionState.CLOSE_SENT,
    },
    ConnectionState.RUNNING: {
        ConnectionClose: ConnectionState.CLOSE_SENT,
        ConnectionBlocked: ConnectionState.RUNNING,
        ConnectionUnblocked: ConnectionState.RUNNING,
        ConnectionUpdateSecretOk: ConnectionState.RUNNING,
    },
    ConnectionState.CLOSE_SENT: {},
    ConnectionState.CLOSE_RECEIVED: {ConnectionCloseOk: ConnectionState.CLOSED},
    ConnectionState.CLOSED: {},
}

OUR_TURN: Final = frozenset({ConnectionState.GREETING, ConnectionState.AUTHENTICATING, ConnectionState.AUTHORIZING})
WAITING: Final = OUR_TURN | {ConnectionState.CLOSED}  # nothing is read
STRANGER: Final = frozenset(
    {ConnectionState.PREFACE, ConnectionState.STARTING, ConnectionState.SECURING, ConnectionState.TUNING}
)  # errors are not answered
ENDING: Final = frozenset(
    {ConnectionState.CLOSE_SENT, ConnectionState.CLOSE_RECEIVED, ConnectionState.CLOSED}
)  # errors are not even noticed
