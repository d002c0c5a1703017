"""A hundred ordinary clients: each has one message unconfirmed, and sends the next when that one is confirmed.

One process plays them all with one poll over their sockets, so the generator stays cheaper than the broker. Connections
are opened before the clock starts.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic_ns

from tools.bench.generators.batch import SinglePublish
from tools.bench.generators.confirms import ConfirmCounter
from tools.bench.generators.line import BrokerConnection
from tools.bench.generators.order import SILENCE_SECONDS_MAX, BrokerFailed, LoadOrder
from tools.bench.generators.times import times_to_readings
from tools.bench.killed_child import Readings


class _Client:
    def __init__(self, line: BrokerConnection, order: LoadOrder) -> None:
        self.line = line
        self.confirms = ConfirmCounter()
        self._wire = bytes(SinglePublish(order.queue, order.size, line.frame_bytes_max).stamped(0, 0))
        self._sent_ns = 0

    def send(self) -> None:
        self.confirms.send(1)
        self._sent_ns = monotonic_ns()
        self.line.send(self._wire)

    def receive_confirm(self) -> float | None:
        """Microseconds that the message took, once it is confirmed."""
        self.confirms.feed(self.line.receive())
        return None if self.confirms.open else (monotonic_ns() - self._sent_ns) / 1000


def many(order: LoadOrder, get_ready: Callable[[], None]) -> Readings:
    """For so many seconds, or until the count is reached; then until all are confirmed."""
    with ExitStack() as lines:
        clients: dict[int, _Client] = {}
        arrivals = select.epoll()
        lines.enter_context(arrivals)
        for _ in range(order.connections):
            line = lines.enter_context(BrokerConnection(order.port))
            line.select_confirms()
            clients[line.socket.fileno()] = _Client(line, order)
            arrivals.register(line.socket, select.EPOLLIN)
        get_ready()
        start = monotonic_ns()
        taken = _exchange(order, clients, arrivals, start)
        seconds = (monotonic_ns() - start) / 1e9
    return {"confirmed": len(taken), "seconds": seconds, "rate": len(taken) / seconds, **times_to_readings(taken)}


def _exchange(order: LoadOrder, clients: dict[int, _Client], arrivals: select.epoll, start: int) -> list[float]:
    end = start + int(order.seconds * 1e9)
    taken: list[float] = []
    for client in clients.values():
        client.send()
    left = len(clients)
    while left:
        events = arrivals.poll(SILENCE_SECONDS_MAX)
        if not events:
            raise BrokerFailed("a publish was not confirmed")
        for descriptor, _ in events:
            client = clients[descriptor]
            microseconds = client.receive_confirm()
            if microseconds is None:
                continue
            taken.append(microseconds)
            if monotonic_ns() < end:
                client.send()
            else:
                left -= 1
    return taken
