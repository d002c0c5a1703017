"""Block walk: follow a file block by block, and resynchronize behind damage.

`walk` follows the blocks of one incarnation of a file until something is not a good block; `next_good` finds the next
good block behind it. The result is interpreted elsewhere (log/read/scan): the same torn bytes are a power cut's result
in the last epoch, and damage below the durable epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from warren.records.block import FileIdentity, Header, check_block
from warren.records.format import ALIGNMENT_BYTES, MAGIC, BlockVerdict, crc32

_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_FIND_STEP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BlockWalk:
    headers: list[Header]
    runnings: list[int]  # running checksum behind each block
    end: int
    stopped_by: BlockVerdict  # GOOD: `stop` was reached

    @property
    def running(self) -> int:
        return self.runnings[-1] if self.runnings else 0


def walk(
    view: memoryview, identity: FileIdentity | None, start: int = 0, stop: int | None = None, running: int = 0
) -> BlockWalk:
    """Good blocks from `start` until `stop` (or until there is none), with the running checksum behind each."""
    headers: list[Header] = []
    runnings: list[int] = []
    offset = start
    verdict = BlockVerdict.GOOD
    while stop is None or offset < stop:
        found = check_block(view, offset, identity)
        if isinstance(found, BlockVerdict):
            verdict = found
            break
        headers.append(found)
        running = crc32(found.checksum.to_bytes(4, "little"), running)
        runnings.append(running)
        offset = found.end
    return BlockWalk(headers, runnings, offset, verdict)


def next_good(view: memoryview, identity: FileIdentity | None, start: int) -> Header | None:
    """The first good block of this incarnation at or behind `start`."""
    at = start
    while at < len(view):
        chunk = bytes(view[at : at + _FIND_STEP_BYTES + len(_MAGIC_BYTES) - 1])
        found = chunk.find(_MAGIC_BYTES)
        while found >= 0:
            if (at + found) % ALIGNMENT_BYTES == 0:
                header = check_block(view, at + found, identity)
                if isinstance(header, Header):
                    return header
            found = chunk.find(_MAGIC_BYTES, found + 1)
        at += _FIND_STEP_BYTES
    return None


def extent(view: memoryview, start: int) -> int:
    """The end of the last non-zero byte, or `start`: how far the file was written behind `start`."""
    end = len(view)
    while end > start:
        begin = max(start, end - _FIND_STEP_BYTES)
        written = bytes(view[begin:end]).rstrip(b"\0")
        if written:
            return begin + len(written)
        end = begin
    return start
