"""Corruption of files on a memory disk, applied after a crash and before the next open.

Each function changes one file in place, synced, under all its names.
"""

from __future__ import annotations

from warren.base.errors import Misuse
from warren.testing.memory_files import MemoryFiles


def tear_tail(files: MemoryFiles, path: str, size: int) -> None:
    """Remove the last `size` bytes."""
    contents = files.contents(path)
    files.set_contents(path, contents[: _before_tail(path, contents, size)])


def zero_tail(files: MemoryFiles, path: str, size: int) -> None:
    """The last `size` bytes become zeros: the size of the file survived, its bytes did not."""
    contents = files.contents(path)
    files.set_contents(path, contents[: _before_tail(path, contents, size)] + bytes(size))


def flip_bit(files: MemoryFiles, path: str, bit: int) -> None:
    """Flip one bit; `bit` counts from the lowest bit of the first byte."""
    contents = bytearray(files.contents(path))
    if not 0 <= bit < len(contents) * 8:
        raise Misuse(f"{path} has no bit {bit}: it has {len(contents) * 8}")
    contents[bit // 8] ^= 1 << (bit % 8)
    files.set_contents(path, bytes(contents))


def stale_tail(files: MemoryFiles, path: str, old_bytes: bytes, offset: int | None = None) -> None:
    """Put bytes of an earlier use of the disk blocks after the tail: at the end of the file or, where it was
    preallocated, from `offset` on."""
    contents = files.contents(path)
    start = len(contents) if offset is None else offset
    if start > len(contents):
        raise Misuse(f"{path} ends at byte {len(contents)}, before {start}")
    files.set_contents(path, contents[:start] + old_bytes + contents[start + len(old_bytes) :])


def _before_tail(path: str, contents: bytes, size: int) -> int:
    if not 0 <= size <= len(contents):
        raise Misuse(f"{path} has no tail of {size} bytes: it has {len(contents)}")
    return len(contents) - size
