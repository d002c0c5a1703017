"""Deliveries found in what was received: as columns, while they all look like the one before.

The first message is parsed frame by frame, which gives the length of a message and the offsets of tag and body. As long
as the bytes that mark frames repeat at that distance, whole runs are viewed as one array and nothing is looped over. A
message of another length, or another frame in between, is learnt anew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.bench.generators import wire
from tools.bench.generators.line import refuse_close

Numbers = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ReceivedMessages:
    """Some messages, in order."""

    tags: Numbers
    is_redelivered: NDArray[np.uint8]
    numbers: Numbers
    times_ns: Numbers

    def __len__(self) -> int:
        return len(self.tags)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a message looks: its length, where its tag and its body are, and what stands at places that never change."""

    length: int
    tag_at: int
    body_at: int
    marks: tuple[tuple[int, int], ...]

    def view(self, data: bytes, at: int, count: int) -> ReceivedMessages:
        rows = np.frombuffer(data, np.uint8, count * self.length, at).reshape(count, self.length)
        return ReceivedMessages(
            _big_endian(rows, self.tag_at),
            rows[:, self.tag_at + 8],
            _big_endian(rows, self.body_at),
            _big_endian(rows, self.body_at + 8),
        )

    def repeats(self, data: bytes, at: int) -> int:
        """How many messages of this form follow each other; some may be yielded one by one instead."""
        count = (len(data) - at) // self.length
        end = at + count * self.length
        are_all = all(data[at + place : end : self.length] == bytes([value]) * count for place, value in self.marks)
        return count if are_all else 0


class Deliveries:
    def __init__(self) -> None:
        self._unread = b""
        self._form: _Form | None = None

    def feed(self, received: bytes) -> Iterator[ReceivedMessages]:
        data = self._unread + received if self._unread else received
        at = 0
        while at < len(data):
            if self._form is not None and (count := self._form.repeats(data, at)):
                yield self._form.view(data, at, count)
                at += count * self._form.length
                continue
            length, form = _learn(data, at)
            if not length:
                break
            if form is not None:
                self._form = form
                yield form.view(data, at, 1)
            at += length
        self._unread = data[at:]


def _learn(data: bytes, at: int) -> tuple[int, _Form | None]:
    """How long what stands here is, 0 while it is not whole, and its form if it is a message."""
    size = _frame_bytes(data, at)
    if not size or data[at] != wire.METHOD:
        return size, None
    which = struct.unpack_from(">HH", data, at + 7)
    refuse_close(which, data[at + 11 : at + size])
    if which != wire.DELIVER:
        return size, None
    header_at = at + size
    header = _frame_bytes(data, header_at)
    if not header:
        return 0, None
    (body_bytes,) = struct.unpack_from(">Q", data, header_at + 11)
    body_at = end = header_at + header
    while body_bytes > 0:
        part = _frame_bytes(data, end)
        if not part:
            return 0, None
        body_bytes -= part - wire.FRAME_EXTRA
        end += part
    return end - at, _form(data, at, header_at, body_at, end)


def _form(data: bytes, at: int, header_at: int, body_at: int, end: int) -> _Form:
    sizes = range(header_at + 11, header_at + 19)
    fixed = [*range(at, at + 12), header_at - 1, *range(header_at, header_at + 7), *sizes, body_at, end - 1]
    marks = tuple((place - at, data[place]) for place in fixed)
    tag_at = 12 + data[at + 11]  # behind the consumer's tag
    return _Form(end - at, tag_at, body_at + wire.FRAME.size - at, marks)


def _frame_bytes(data: bytes, at: int) -> int:
    """The whole frame here, 0 while it is not there."""
    if len(data) - at < wire.FRAME_EXTRA:
        return 0
    size = int(wire.FRAME.unpack_from(data, at)[2]) + wire.FRAME_EXTRA
    return size if len(data) - at >= size else 0


def _big_endian(rows: NDArray[np.uint8], at: int) -> Numbers:
    wide: Numbers = rows[:, at : at + 8].copy().view(">u8").reshape(-1).astype(np.uint64)
    return wide
