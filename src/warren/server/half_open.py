"""Half-open connections: connections whose handshake has not ended, counted by address.

    one more than `most` ──▶ the oldest connection of the address with the most connections is dropped

So new clients can always connect: many half-open connections of one address only displace each other, and with many
addresses the oldest are dropped first. An IPv6 address counts by its network (64 bits), as for failed logins. Every
operation takes constant time: a table has the addresses by their number of connections.

Invariants: each address is in the row of its count; `_highest` is the highest row that is not empty, or 0.
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
        """Returns the connection to drop if there are too many."""
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
        """The handshake has ended, or the connection was closed."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        connections = self._by_address[address]
        del connections[connection]
        self._move(address, len(connections) + 1, len(connections))
        if not connections:
            del self._by_address[address]

    def _move(self, address: str, before: int, now: int) -> None:
        """Move an address to the adjacent row."""
        if before:
            del self._by_count[before][address]
        if now:
            self._by_count.setdefault(now, OrderedDict())[address] = None
        if now > self._highest or (before == self._highest and not self._by_count[before]):
            self._highest = now
        if before and not self._by_count[before]:
            del self._by_count[before]
