"""Which publishes were confirmed: exactly, each tag once, whether confirmed one by one or many at once.

Acknowledgements are frames of 21 bytes, and mostly arrive with nothing between them: then the marker columns are
compared at once, and only the tags are unpacked. Anything else is parsed frame by frame. A tag that was never sent, or
confirmed twice singly, and a negative acknowledgement end the run.
"""

from __future__ import annotations

import struct

from tools.bench.generators import wire
from tools.bench.generators.line import refuse_close
from tools.bench.generators.order import BrokerFailed

_ACK_BYTES = 21
_TAGS = struct.Struct(">11xQBx")
_MARKS = ((0, 1), (6, 13), (8, 60), (10, 80), (20, 0xCE))  # where in an ack, and what
_ACK_HEAD = wire.ack(0)[:11]
_ACK_TAIL = struct.Struct(">QBB")
_GROWTH = 1 << 20
assert _TAGS.size == _ACK_BYTES


class ConfirmCounter:
    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0
        self._is_confirmed = bytearray(_GROWTH)  # by tag
        self._first_open = 1  # all tags before it are confirmed
        self._unread = b""

    @property
    def open(self) -> int:
        return self.sent - self.confirmed

    def send(self, count: int) -> None:
        self.sent += count
        while len(self._is_confirmed) <= self.sent:
            self._is_confirmed.extend(bytes(len(self._is_confirmed)))

    def feed(self, received: bytes) -> None:
        if self._is_the_last(received):
            self._is_confirmed[self.sent] = 1
            self.confirmed += 1
            return
        data = self._unread + received if self._unread else received
        end = len(data) // _ACK_BYTES * _ACK_BYTES
        if _are_acks(data, end):
            for tag, is_multiple in _TAGS.iter_unpack(memoryview(data)[:end]):
                self._confirm(tag, is_multiple)
            self._unread = data[end:]
        else:
            self._unread = data[self._walk(data) :]

    def _is_the_last(self, received: bytes) -> bool:
        """The confirm of the only message in flight, for a client that waits for each."""
        return (
            self.confirmed + 1 == self.sent
            and not self._unread
            and received == _ACK_HEAD + _ACK_TAIL.pack(self.sent, 0, 0xCE)
            and not self._is_confirmed[self.sent]
        )

    def _confirm(self, tag: int, is_multiple: int) -> None:
        if not 0 < tag <= self.sent:
            raise BrokerFailed(f"publish {tag} was confirmed, and {self.sent} were sent")
        if is_multiple:
            first = self._first_open
            if tag >= first:
                self.confirmed += self._is_confirmed.count(0, first, tag + 1)
                self._is_confirmed[first : tag + 1] = b"\1" * (tag + 1 - first)
                self._first_open = tag + 1
        elif self._is_confirmed[tag]:
            raise BrokerFailed(f"publish {tag} was confirmed twice")
        else:
            self._is_confirmed[tag] = 1
            self.confirmed += 1

    def _walk(self, data: bytes) -> int:
        """Frame by frame; how far there were whole ones."""
        at = 0
        while len(data) - at >= wire.FRAME_EXTRA:
            kind, _, size = wire.FRAME.unpack_from(data, at)
            if len(data) - at < size + wire.FRAME_EXTRA:
                break
            if kind == wire.METHOD:
                self._method(data[at + wire.FRAME.size : at + wire.FRAME.size + size])
            at += size + wire.FRAME_EXTRA
        return at

    def _method(self, payload: bytes) -> None:
        which = struct.unpack_from(">HH", payload)
        if which == wire.ACK:
            self._confirm(*struct.unpack_from(">QB", payload, 4))
        elif which == wire.NACK:
            raise BrokerFailed("the broker nacked a publish")
        refuse_close(which, payload[4:])


def _are_acks(data: bytes, end: int) -> bool:
    count = end // _ACK_BYTES
    return count > 0 and all(data[place:end:_ACK_BYTES] == bytes([value]) * count for place, value in _MARKS)
