"""Every (state, frame) pair: what brings a server into each state, and what is then sent to it.

    state         how a server gets there                                     on which channel it is then tried
    starting      protocol header                                             0, and 1
    securing      … a mechanism that asks back                                0
    tuning        … start-ok                                                  0, and 1
    opening       … tune-ok                                                   0, and 1
    running       … open                                                      0
    ended         … a method that is wrong there: the server has sent close   0, and 1
    unopened      running, channel 1 never opened                             1
    open          … channel.open                                              1
    header        … basic.publish: its content header is due                  1
    body          … header: its body is due                                   1
    closing       open, then a soft error: the server has sent channel.close  1

The answers expected stand in expected_pairs.tsv, one row for each frame and one column for each state:

    accepted      it is passed on, or answered normally
    ignored       nothing happens
    dropped       the socket is closed without a word
    hard 504      connection.close with this code
    soft 404      channel.close with this code

Bytes only, so that the same pairs can be put to our machine and to any server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from warren.amqp import content, frames, methods

EXPECTED_FILE: Final = Path(__file__).with_name("expected_pairs.tsv")
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
CHALLENGING: Final = "RABBIT-CR-DEMO"  # RabbitMQ's mechanism with a challenge; the test server does the same

# Fields that no server has a reason to object to; all others have their defaults.
HARMLESS: Final[dict[type[methods.Method], methods.Method]] = {
    type(method): method
    for method in (
        methods.ConnectionStartOk(response=b"\0guest\0guest"),
        methods.ConnectionSecureOk(response=b"My password is guest"),
        methods.ConnectionTuneOk(channel_max=100, frame_max=4096, heartbeat=0),
        methods.ConnectionClose(reply_code=200),
        methods.ChannelClose(reply_code=200),
        methods.ChannelFlow(active=True),
        methods.ChannelFlowOk(active=True),
        methods.ExchangeDeclare(exchange="amq.direct", passive=True),
        methods.QueueDeclare(queue="pairs", exclusive=True),
        methods.QueueBind(queue="pairs", exchange="amq.direct"),
        methods.QueueUnbind(queue="pairs", exchange="amq.direct"),
        methods.QueuePurge(queue="pairs"),
        methods.QueueDelete(queue="pairs"),
        methods.BasicConsume(queue="pairs"),
        methods.BasicGet(queue="pairs"),
        methods.BasicPublish(routing_key="pairs"),
        methods.BasicRecover(requeue=True),
        methods.BasicRecoverAsync(requeue=True),
    )
}
FRAMES: Final = ("a header frame", "a body frame", "a heartbeat", "a frame of no type")
TRIED: Final = tuple(spec.name for spec in methods.METHODS.values()) + FRAMES


def to_send(tried: str, channel: int) -> bytes:
    if tried in FRAMES:
        return _PLAIN[tried](channel)
    spec = next(each for each in methods.METHODS.values() if each.name == tried)
    return frames.method_frame(channel, HARMLESS.get(spec.made_by) or spec.made_by())


_HEADER_PAYLOAD: Final = content.HEADER_HEAD.pack(60, 0, 5) + b"\x00\x00"
_PLAIN: Final = {
    "a header frame": lambda channel: frames.write_frame(frames.HEADER, channel, _HEADER_PAYLOAD),
    "a body frame": lambda channel: frames.write_frame(frames.BODY, channel, b"hello"),
    "a heartbeat": lambda channel: frames.write_frame(frames.HEARTBEAT, channel, b""),
    "a frame of no type": lambda channel: frames.write_frame(9, channel, b""),
}

_START_OK: Final = (PROTOCOL_HEADER, to_send("connection.start-ok", 0))
_TUNE_OK: Final = (*_START_OK, to_send("connection.tune-ok", 0))
_OPEN: Final = (*_TUNE_OK, to_send("connection.open", 0))
_CHANNEL: Final = (*_OPEN, to_send("channel.open", 1))
_PUBLISH: Final = (*_CHANNEL, to_send("basic.publish", 1))
_CHALLENGED: Final = frames.method_frame(0, methods.ConnectionStartOk(mechanism=CHALLENGING, response=b"guest"))
_NO_SUCH_QUEUE: Final = frames.method_frame(1, methods.QueueDeclare(queue="no such queue", passive=True))

# What is sent one after the other, each time waiting for the answer if there is one; then the channel to try it on.
STATES: Final[dict[str, tuple[tuple[bytes, ...], int]]] = {
    "starting 0": (_START_OK[:1], 0),
    "starting 1": (_START_OK[:1], 1),
    "securing 0": ((PROTOCOL_HEADER, _CHALLENGED), 0),
    "tuning 0": (_START_OK, 0),
    "tuning 1": (_START_OK, 1),
    "opening 0": (_TUNE_OK, 0),
    "opening 1": (_TUNE_OK, 1),
    "running 0": (_OPEN, 0),
    "ended 0": ((*_OPEN, to_send("basic.qos", 0)), 0),
    "ended 1": ((*_OPEN, to_send("basic.qos", 0)), 1),
    "unopened 1": (_OPEN, 1),
    "open 1": (_CHANNEL, 1),
    "header 1": (_PUBLISH, 1),
    "body 1": ((*_PUBLISH, to_send("a header frame", 1)), 1),
    "closing 1": ((*_CHANNEL, _NO_SUCH_QUEUE), 1),
}
UNANSWERED: Final = (to_send("connection.tune-ok", 0), to_send("basic.publish", 1), to_send("a header frame", 1))


def is_answered(sent: bytes) -> bool:
    return sent not in UNANSWERED


def expected_pairs() -> dict[tuple[str, str], str]:
    """(state, what is sent) → answer."""
    first, *rows = EXPECTED_FILE.read_text(encoding="utf-8").splitlines()
    states = first.split("\t")[1:]
    return {
        (state.strip(), row.split("\t")[0].strip()): answer.strip()
        for row in rows
        for state, answer in zip(states, row.split("\t")[1:], strict=True)
    }


def written_pairs(answers: dict[tuple[str, str], str]) -> str:
    lines = [["", *STATES], *([tried, *(answers[state, tried] for state in STATES)] for tried in TRIED)]
    return "".join("\t".join(line) + "\n" for line in lines)
