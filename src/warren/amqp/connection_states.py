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


class State(Enum):
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


_Moves = dict[type[Method], State]

RECEIVED: Final[dict[State, _Moves]] = {
    State.PREFACE: {},
    State.GREETING: {},
    State.STARTING: {ConnectionStartOk: State.AUTHENTICATING},
    State.SECURING: {ConnectionSecureOk: State.AUTHENTICATING},
    State.AUTHENTICATING: {},
    State.TUNING: {ConnectionTuneOk: State.OPENING},
    State.OPENING: {ConnectionOpen: State.AUTHORIZING},
    State.AUTHORIZING: {},
    State.RUNNING: {ConnectionClose: State.CLOSE_RECEIVED, ConnectionUpdateSecret: State.RUNNING},
    State.CLOSE_SENT: {ConnectionClose: State.CLOSE_SENT, ConnectionCloseOk: State.CLOSED},
    State.CLOSE_RECEIVED: {},
    State.CLOSED: {},
}

SENT: Final[dict[State, _Moves]] = {
    State.PREFACE: {},
    State.GREETING: {ConnectionStart: State.STARTING},
    State.STARTING: {},
    State.SECURING: {},
    State.AUTHENTICATING: {
        ConnectionSecure: State.SECURING,
        ConnectionTune: State.TUNING,
        ConnectionClose: State.CLOSE_SENT,
    },
    State.TUNING: {ConnectionClose: State.CLOSE_SENT},
    State.OPENING: {ConnectionClose: State.CLOSE_SENT},
    State.AUTHORIZING: {ConnectionOpenOk: State.RUNNING, ConnectionClose: State.CLOSE_SENT},
    State.RUNNING: {
        ConnectionClose: State.CLOSE_SENT,
        ConnectionBlocked: State.RUNNING,
        ConnectionUnblocked: State.RUNNING,
        ConnectionUpdateSecretOk: State.RUNNING,
    },
    State.CLOSE_SENT: {},
    State.CLOSE_RECEIVED: {ConnectionCloseOk: State.CLOSED},
    State.CLOSED: {},
}

OUR_TURN: Final = frozenset({State.GREETING, State.AUTHENTICATING, State.AUTHORIZING})
WAITING: Final = OUR_TURN | {State.CLOSED}  # nothing is read
STRANGER: Final = frozenset({State.PREFACE, State.STARTING, State.SECURING, State.TUNING})  # errors are not answered
ENDING: Final = frozenset({State.CLOSE_SENT, State.CLOSE_RECEIVED, State.CLOSED})  # errors are not even noticed
