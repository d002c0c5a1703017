"""A generator's socket: as few system calls and as little memory for each message as a client in C would need.

The kernel ends the wait for a silent broker: a Python timeout costs a poll before every call.
Data is received into one buffer: allocating a megabyte for an answer of twenty bytes cost more than the answer, and
made a hundred clients with a message each twice as slow as the broker.
"""

from __future__ import annotations

import socket
import struct

from tools.bench.generators.order import HOST, SILENCE_SECONDS_MAX, BrokerFailed

RECEIVED_BYTES_MAX = 1 << 20


class Plug:
    def __init__(self, port: int, silence_seconds_max: int = SILENCE_SECONDS_MAX) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", silence_seconds_max, 0))
        self._silence_seconds_max = silence_seconds_max
        self._buffer = memoryview(bytearray(RECEIVED_BYTES_MAX))

    def send(self, message: bytes | bytearray | memoryview) -> None:
        try:
            self.socket.sendall(message)
        except BlockingIOError:
            raise self._silent("took nothing") from None

    def receive(self) -> bytes:
        """What has come, at least a byte; nothing if the other side has hung up."""
        try:
            size = self.socket.recv_into(self._buffer)
        except BlockingIOError:
            raise self._silent("said nothing") from None
        return bytes(self._buffer[:size])

    def close(self) -> None:
        self.socket.close()

    def _silent(self, what: str) -> BrokerFailed:
        return BrokerFailed(f"the broker {what} for {self._silence_seconds_max} s", "check its log")
