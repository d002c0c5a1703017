"""What happens to bytes while nobody looks: faults put into a memory disk after a crash, before it is opened again.

Each changes one file in place, synced, under all its names.
"""

from __future__ import annotations

from warren.base.errors import Misuse
from warren.testing.memory_files import MemoryFiles


def tear_tail(files: MemoryFiles, path: str, size: int) -> None:
    """The last `size` bytes are gone."""
    contents = files.contents(path)
    files.set_contents(path, contents[: _before_tail(path, contents, size)])


def zero_tail(files: MemoryFiles, path: str, size: int) -> None:
    """The last `size` bytes are zeros: the file's size was kept, its bytes were not."""
    contents = files.contents(path)
    files.set_contents(path, contents[: _before_tail(path, contents, size)] + bytes(size))


def flip_bit(files: MemoryFiles, path: str, bit: int) -> None:
    """One bit is the other one; `bit` counts from the lowest of the first byte."""
    contents = bytearray(files.contents(path))
    if not 0 <= bit < len(contents) * 8:
        raise Misuse(f"{path} has no bit {bit}: it has {len(contents) * 8}")
    contents[bit // 8] ^= 1 << (bit % 8)
    files.set_contents(path, bytes(contents))


def stale_tail(files: MemoryFiles, path: str, old_bytes: bytes, offset: int | None = None) -> None:
    """Bytes of an earlier life of the file's blocks stand behind its tail: at the end or, where the file was allocated
    ahead of what is written, from `offset` on."""
    contents = files.contents(path)
    start = len(contents) if offset is None else offset
    if start > len(contents):
        raise Misuse(f"{path} ends at byte {len(contents)}, before {start}")
    files.set_contents(path, contents[:start] + old_bytes + contents[start + len(old_bytes) :])


def _before_tail(path: str, contents: bytes, size: int) -> int:
    if not 0 <= size <= len(contents):
        raise Misuse(f"{path} has no tail of {size} bytes: it has {len(contents)}")
    return len(contents) - size
