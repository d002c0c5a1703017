"""What both sides agree on before they open: how many channels, how large a frame, how often a sign of life.

The server offers, the client answers with what it wants; an answer above the offer ends the connection, as with
RabbitMQ. Zero means "no limit" in an offer, so that an answer of zero is above every other offer.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.frames import CHANNEL_MAX, FRAME_BYTES_MIN
from warren.amqp.methods import ConnectionTune, ConnectionTuneOk


@dataclass(frozen=True, slots=True)
class Tuning:
    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat: int = 60  # seconds

    @property
    def channel_number_max(self) -> int:
        return self.channel_max or CHANNEL_MAX


def offered(tuning: Tuning) -> ConnectionTune:
    return ConnectionTune(tuning.channel_max, tuning.frame_max, tuning.heartbeat)


def agreed(offer: Tuning, answer: ConnectionTuneOk) -> Tuning:
    """The client's values, if they are within the offer."""
    _check("frame_max", offer.frame_max, answer.frame_max, FRAME_BYTES_MIN)
    _check("channel_max", offer.channel_max, answer.channel_max, 1)
    return Tuning(answer.channel_max, answer.frame_max, answer.heartbeat)


def _check(what: str, offer: int, answer: int, least: int) -> None:
    unlimited = " (no limit)" if answer == 0 else ""
    if 0 < answer < least:
        fault = f"is lower than the minimum allowed value ({least})"
    elif offer and (answer == 0 or answer > offer):
        fault = f"is higher than the maximum allowed value ({offer})"
    else:
        return
    raise PeerError(ReplyCode.NOT_ALLOWED, f"negotiated {what} = {answer}{unlimited} {fault}", 10, 30)
