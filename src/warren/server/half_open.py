"""Connections whose handshake has not ended, counted by address.

    one more than `most` ──▶ the oldest connection of the address that has the most is dropped

So new clients always get in: many half-open connections of one address only displace each other, and of many addresses
the oldest go first. An address of IPv6 counts by its network (64 bits), as for failed logins. Every operation takes the
same time, however many there are: addresses stand in a table by how many connections they have.

Invariants: each address stands in the row of its count; `_highest` is the highest row that is not empty, or 0.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from warren.server.authentication import network_of

Connection = TypeVar("Connection", bound=Hashable)


class HalfOpenConnections(Generic[Connection]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._addresses: dict[Connection, str] = {}
        self._by_address: dict[str, OrderedDict[Connection, None]] = {}
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        self._highest = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._addresses)

    def add(self, connection: Connection, peer: str) -> Connection | None:
        """The connection that is to be dropped for it, if there are too many."""
        address = network_of(peer)
        self._addresses[connection] = address
        connections = self._by_address.setdefault(address, OrderedDict())
        connections[connection] = None
        self._move(address, len(connections) - 1, len(connections))
        if len(self._addresses) <= self._most:
            return None
        fullest = next(iter(self._by_count[self._highest]))
        oldest = next(iter(self._by_address[fullest]))
        self.remove(oldest)
        return oldest

    def remove(self, connection: Connection) -> None:
        """Its handshake has ended, or it has gone."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        connections = self._by_address[address]
        del connections[connection]
        self._move(address, len(connections) + 1, len(connections))
        if not connections:
            del self._by_address[address]

    def _move(self, address: str, before: int, now: int) -> None:
        """To the next row, up or down."""
        if before:
            del self._by_count[before][address]
        if now:
            self._by_count.setdefault(now, OrderedDict())[address] = None
        if now > self._highest or (before == self._highest and not self._by_count[before]):
            self._highest = now
        if before and not self._by_count[before]:
            del self._by_count[before]
