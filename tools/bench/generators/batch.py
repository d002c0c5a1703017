"""Publishes made ahead: many equal messages in one buffer, of which only the sequence numbers and times change.

    | publish · header · body: sequence, time, letters | publish · header · body … |      messages of equal length

The sequence number of a batch's first message is a multiple of its count, so the last byte of each never changes in a
batch of 256, and the other columns mostly hold what they held before: a column is one strided assignment.
"""

from __future__ import annotations

import struct

from tools.bench.generators.order import LoadOrder
from tools.bench.generators.wire import message

COUNT_MAX = 256
BYTES_MAX = 1 << 18
STAMPED_BYTES = 16  # sequence and time


def body_of(size: int) -> bytes:
    """All zeros where it is stamped, letters behind."""
    return bytes(STAMPED_BYTES) + bytes((at * 7 + 65) % 26 + 97 for at in range(size - STAMPED_BYTES))


def batch_count(order: LoadOrder) -> int:
    """A power of two: a quarter of the window at most, and not too many bytes."""
    count = 1
    while count * 2 <= min(COUNT_MAX, order.window // 4) and count * 2 * order.size <= BYTES_MAX:
        count *= 2
    return count


class PublishBatch:
    """`count` messages; a prefix of them is sent where fewer are wanted."""

    def __init__(self, queue: str, size: int, count: int, frame_bytes_max: int) -> None:
        assert size >= STAMPED_BYTES and 1 <= count <= COUNT_MAX
        one, self._at = message(queue, body_of(size), frame_bytes_max)
        self._length = len(one)
        self.count = count
        self._bytes = bytearray(one * count)
        self._view = memoryview(self._bytes)

    def stamped(self, first: int, time_ns: int, count: int | None = None) -> memoryview:
        """Numbered from `first`, a multiple of the batch's count."""
        assert first % self.count == 0
        number = struct.pack(">Q", first)
        for place in range(7):
            self._set(place, number[place])
        last = number[7]
        self._bytes[self._at + 7 :: self._length] = bytes(range(last, last + self.count))
        for place, value in enumerate(struct.pack(">Q", time_ns), start=8):
            self._set(place, value)
        return self._view[: (self.count if count is None else count) * self._length]

    def _set(self, place: int, value: int) -> None:
        at = self._at + place
        if self._bytes[at] != value:
            self._bytes[at :: self._length] = bytes([value]) * self.count


class SinglePublish:
    """One message at a time, any number, any time."""

    def __init__(self, queue: str, size: int, frame_bytes_max: int) -> None:
        one, self._at = message(queue, body_of(size), frame_bytes_max)
        self._bytes = bytearray(one)

    def stamped(self, number: int, time_ns: int) -> bytearray:
        struct.pack_into(">QQ", self._bytes, self._at, number, time_ns)
        return self._bytes
