"""Merging ordered runs in pieces: what lies in memory and what lies in files, lowest version first.

    run 1    | a c f | h k |            each run in order, block by block
    run 2    | b d | e g z |
    step 1   bound d: a b c d           everything up to the least last entry of the blocks in hand …
    step 2   bound f: e f               … has no rival in any later block

A step joins what the blocks in hand have up to the bound and orders it as columns. Runs that begin behind the bound
are not looked at, so files that follow one another cost as much as one. Memory: one block of each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warren.records.columns import EntryColumns
from warren.records.numbers import U64
from warren.snapshot.kept import BufferedEntries, BufferedPool
from warren.snapshot.version_order import OrderKey, rows_not_above


def merged(runs: Sequence[Iterator[BufferedEntries]], bytes_max: int) -> Iterator[EntryColumns]:
    """The entries of all runs in order, in batches of about this size at most."""
    heads = [head for head in map(_Head, runs) if head.is_there]
    while len(heads) > 1:
        bound = min(head.last for head in heads)
        parts = [head.up_to(bound) for head in heads if head.first <= bound]
        heads = [head for head in heads if head.is_there]
        for piece in parts if len(parts) == 1 else BufferedPool(parts).in_order(bytes_max):
            yield from piece.entries.split(bytes_max)
    for head in heads:
        for piece in head.rest():
            yield from piece.entries.split(bytes_max)


class _Head:
    """The block of a run that is in hand, from its first entry that was not taken yet."""

    def __init__(self, run: Iterator[BufferedEntries]) -> None:
        self._run = run
        self._block: BufferedEntries
        self.first: OrderKey
        self.last: OrderKey
        self.is_there = self._advance()

    def up_to(self, bound: OrderKey) -> BufferedEntries:
        """Take what is not above the bound."""
        columns: list[U64] = [column.array() for column in self._block.columns]
        stop = rows_not_above(columns, bound)
        part = self._block.part(0, stop)
        if stop == self._block.count:
            self.is_there = self._advance()
        else:
            self._block = self._block.part(stop, self._block.count)
            self.first = self._block.key(0)
        return part

    def rest(self) -> Iterator[BufferedEntries]:
        yield self._block
        yield from self._run

    def _advance(self) -> bool:
        """To the next block; whether there is one."""
        block = next((block for block in self._run if block.count), None)
        if block is not None:
            self._block = block
            self.first, self.last = block.key(0), block.key(block.count - 1)
        return block is not None
