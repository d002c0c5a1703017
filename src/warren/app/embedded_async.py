"""A key-value storage for coroutines: the same calls, each in a thread, so that the event loop goes on meanwhile.

Calls that wait for the disk at the same time share its syncs, as threads do. Ranges come in pieces: one is read in a
thread, its rows are handed out without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice

from warren.snapshot.key_values import KeyValues, Pairs

_PIECE_ROWS = 512


class AsyncKeyValues:
    def __init__(self, inner: KeyValues) -> None:
        self.inner = inner

    async def get(self, key: bytes) -> bytes | None:
        return await asyncio.to_thread(self.inner.get, key)

    async def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        return await asyncio.to_thread(self.inner.get_many, keys)

    async def put(self, key: bytes, value: bytes) -> None:
        await asyncio.to_thread(self.inner.put, key, value)

    async def put_many(self, pairs: Pairs) -> None:
        await asyncio.to_thread(self.inner.put_many, pairs)

    async def put_if(self, key: bytes, value: bytes, expected: bytes | None) -> bool:
        return await asyncio.to_thread(self.inner.put_if, key, value, expected)

    async def discard(self, *keys: bytes) -> None:
        await asyncio.to_thread(self.inner.discard, *keys)

    async def clear(self) -> None:
        await asyncio.to_thread(self.inner.clear)

    def range(
        self, low: bytes = b"", high: bytes | None = None, reverse: bool = False
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """As of the moment it begins."""
        return _pieces(self.inner.range(low, high, reverse))

    def prefix(self, start: bytes, reverse: bool = False) -> AsyncIterator[tuple[bytes, bytes]]:
        return _pieces(self.inner.prefix(start, reverse))


async def _pieces(rows: Iterator[tuple[bytes, bytes]]) -> AsyncIterator[tuple[bytes, bytes]]:
    while piece := await asyncio.to_thread(lambda: list(islice(rows, _PIECE_ROWS))):
        for row in piece:
            yield row
