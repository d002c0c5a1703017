"""Send the pairs to a server over real sockets, and print where its answers differ from expected_pairs.tsv.

    python -m tests.amqp.ask_server --port 5672

The server needs a user guest/guest, and for the column `securing` the mechanism RABBIT-CR-DEMO (RabbitMQ has it; it is
switched on by `auth_mechanisms`). An error about the names of queues or tags is taken for `accepted`: the frame was.
Silence is `ignored` or `accepted`, which a client cannot distinguish.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.amqp import pairs
from warren.amqp import frames, methods

ANSWER_SECONDS_MAX = 8.0
SILENCE_SECONDS = 5.0  # RabbitMQ waits for three before it drops an unauthenticated client
AT_ONCE = 120

# Answered by RabbitMQ too, but only when the content has come that belongs to the method.
ONLY_WITH_CONTENT = {
    *(("unopened 1", tried) for tried in ("basic.publish", "basic.return", "basic.deliver", "basic.get-ok")),
    *(("open 1", tried) for tried in ("basic.return", "basic.deliver", "basic.get-ok")),
}


class Peer:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._buffer = b""
        self.is_gone = False

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self._socket.close()

    def frame(self, seconds: float) -> frames.Frame | None:
        until = time.monotonic() + seconds
        while not (read := frames.read_frame(self._buffer, 0, 0)):
            self._socket.settimeout(max(0.01, until - time.monotonic()))
            try:
                answer = self._socket.recv(65536)
            except TimeoutError:
                return None
            except ConnectionError:
                answer = b""
            if not answer:
                self.is_gone = True
                return None
            self._buffer += answer
        self._buffer = self._buffer[read[1] :]
        return read[0]


def answer_of(host: str, port: int, state: str, tried: str) -> str:
    steps, channel = pairs.STATES[state]
    peer = Peer(host, port)
    try:
        for step in steps:
            peer.send(step)
            if pairs.is_answered(step) and peer.frame(ANSWER_SECONDS_MAX) is None:
                return "not reached"
        peer.send(pairs.to_send(tried, channel))
        answers = list(_answers(peer))
    finally:
        peer.close()
    return next(iter(answers), "dropped" if peer.is_gone else "silence")


def _answers(peer: Peer) -> Iterator[str]:
    while frame := peer.frame(SILENCE_SECONDS):
        match methods.decode(frame.payload) if frame.kind == frames.METHOD else None:
            case methods.ConnectionClose(reply_code=code):
                yield f"hard {code}"
                return
            case methods.ChannelClose(reply_code=code):
                yield f"soft {code}"
            case _:
                yield "accepted"


def agrees(expected: str, answer: str) -> bool:
    if expected == "accepted":
        return answer in ("accepted", "silence", "dropped") or answer.startswith("soft")
    return answer == ("silence" if expected == "ignored" else expected)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    arguments = parser.parse_args()
    expected = pairs.expected_pairs()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = list(threads.map(lambda pair: answer_of(arguments.host, arguments.port, *pair), expected))
    wrong = 0
    for (pair, wanted), answer in zip(expected.items(), answers, strict=True):
        if not agrees(wanted, answer) and pair not in ONLY_WITH_CONTENT:
            wrong += 1
            print(f"{pair[0]:12} {pair[1]:26} expected {wanted}, got {answer}")
    print(f"{len(expected)} pairs, {wrong} differ")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
