"""Send the cases of declarations_cases to a server over real sockets, and print the answers that differ from the table.

    python -m tests.broker.declarations_replay --port 5672 [--write]

The server needs, besides guest/guest, the users of the cases, each with its name for a password:

    rabbitmqctl add_user ann ann;  rabbitmqctl set_permissions ann c w r
    rabbitmqctl add_user tom tom;  rabbitmqctl set_permissions tom '.*' '.*' '.*'
    rabbitmqctl set_topic_permissions tom topics '.*' '^ok'

Leftovers of a case are deleted after it. `--write` rewrites the table from the answers of the server; Warren's
own words (what follows a `~`) are marked by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.amqp.ask_server import Peer
from tests.amqp.pairs import PROTOCOL_HEADER
from tests.broker import declarations_cases as cases
from tests.broker import declarations_stage
from warren.amqp import content, frames, methods
from warren.amqp.methods import Method

ANSWER_SECONDS_MAX = 8.0
USERS = {"a": "guest", "b": "guest", "n": "ann", "t": "tom"}
_NO_PROPERTIES = b"\x00\x00"


class Connection:
    def __init__(self, host: str, port: int, user: str) -> None:
        self._peer = Peer(host, port)
        self._peer.send(PROTOCOL_HEADER)
        self.receive()
        self.request(0, methods.ConnectionStartOk(response=f"\0{user}\0{user}".encode()))
        self.send(0, methods.ConnectionTuneOk(channel_max=10, frame_max=131072, heartbeat=0))
        self.request(0, methods.ConnectionOpen())
        self.request(1, methods.ChannelOpen())

    def send(self, channel: int, method: Method) -> None:
        self._peer.send(frames.method_frame(channel, method))

    def request(self, channel: int, method: Method) -> Method:
        self.send(channel, method)
        return self.receive()

    def receive(self) -> Method:
        """The next method that is an answer: deliveries are skipped."""
        while True:
            frame = self._peer.frame(ANSWER_SECONDS_MAX)
            assert frame is not None, "no answer from the server"
            if frame.kind == frames.METHOD:
                method = methods.decode(frame.payload)
                if not isinstance(method, methods.BasicDeliver):
                    return method

    def publish(self, queue: str, count: int) -> None:
        self.request(1, methods.ConfirmSelect())
        for _ in range(count):
            self.send(1, methods.BasicPublish(routing_key=queue))
            header = content.HEADER_HEAD.pack(60, 0, 1) + _NO_PROPERTIES
            self._peer.send(frames.write_frame(frames.HEADER, 1, header) + frames.write_frame(frames.BODY, 1, b"m"))
            self.receive()

    def close(self) -> None:
        self._peer.close()


def answer_of(host: str, port: int, steps: list[cases.Step]) -> str:
    """The answer to the last step; or to the first that was refused before it, which is a mistake in the case."""
    connections: dict[str, Connection] = {}
    reply = "nothing"
    try:
        for step in steps:
            client_name, action = step if isinstance(step, cases.By) else ("a", step)
            if reply.startswith(("soft", "hard")):
                return f"too early: {reply}"
            if client_name not in connections:
                connections[client_name] = Connection(host, port, USERS[client_name])
            reply = _step(connections[client_name], action)
    finally:
        for connection in connections.values():
            connection.close()
    return reply


def _step(connection: Connection, action: cases.Action) -> str:
    if isinstance(action, cases.Publish):
        connection.publish(action.queue, action.messages)
        return "ok"
    if isinstance(action, cases.Consume):
        connection.request(1, methods.BasicQos(prefetch_count=1))
        return answer_line(connection.request(1, methods.BasicConsume(queue=action.queue)))
    return answer_line(connection.request(1, action))


def answer_line(answer: Method) -> str:
    match answer:
        case methods.ConnectionClose(reply_code=code, reply_text=text):
            return declarations_stage.shown(f"hard {code} {text}")
        case methods.ChannelClose(reply_code=code, reply_text=text):
            return declarations_stage.shown(f"soft {code} {text}")
    return declarations_stage.answer_line(answer)


def clean(host: str, port: int) -> None:
    connection = Connection(host, port, "guest")
    for name in cases.QUEUE_NAMES:
        connection.request(1, methods.QueueDelete(queue=name))
    for name in cases.EXCHANGE_NAMES:
        connection.request(1, methods.ExchangeDelete(exchange=name))
    connection.close()


def agrees(expected: str, found: str) -> bool:
    """Up to the mark after which words differ."""
    plain, mark, _ = expected.partition("~")
    return found.startswith(plain) if mark else found == plain


def answers(host: str, port: int) -> Iterator[tuple[str, str]]:
    clean(host, port)
    for name, steps in cases.CASES.items():
        yield name, answer_of(host, port, steps)
        clean(host, port)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = dict(answers(options.host, options.port))
    if options.write:
        cases.EXPECTED_FILE.write_text("".join(f"{name}\t{reply}\n" for name, reply in found.items()), encoding="utf-8")
        return 0
    expected = cases.expected_answers()
    wrong = [name for name, reply in found.items() if not agrees(expected.get(name, ""), reply)]
    for name in wrong:
        print(f"{name}\n    expected {expected.get(name)}\n    got      {found[name]}")
    print(f"{len(found)} cases, {len(wrong)} differ")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
