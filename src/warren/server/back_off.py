"""Who guesses passwords is answered ever more slowly, and at some point looked at only now and then.

    failures of one address      answered after             hashed
    1, 2, 3, 4 …                 1, 2, 3, 3 s, no longer    yes
    more than `FREE_FAILURES`    3 s                        one login a second, the others are refused unseen

Failures are forgotten a minute after the last one. An address of IPv6 counts by its network (64 bits), for who has one
of them has them all. The table is bounded: the address that failed least recently is forgotten first.

Only refusals wait, and a login that is known already (`known_logins`) is not looked at twice: others behind the same
address get in, though a new one among them may have to try again. Not thread-safe: its owner has a lock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from warren.base.clock import Clock

ADDRESSES_MAX = 4096
FREE_FAILURES = 10
DELAY_SECONDS_MAX = 3.0  # kombu, and so Celery, waits five for a connection: it shall hear why it does not get in
_FORGOTTEN_NS = 60_000_000_000
_PACE_NS = 1_000_000_000
_NETWORK_BITS = 64


@dataclass(slots=True)
class _Failures:
    count: int
    last_ns: int
    looked_at_ns: int


class BackOff:
    def __init__(self, clock: Clock, delay_seconds: float, addresses_max: int = ADDRESSES_MAX) -> None:
        self._clock = clock
        self._delay_seconds = delay_seconds
        self._addresses_max = addresses_max
        self._failed: OrderedDict[str, _Failures] = OrderedDict()

    def may_try(self, peer: str) -> bool:
        """Whether a login from there is worth a hash now. No address is a socket of this machine: always."""
        now, found = self._clock.monotonic_ns(), self._failed.get(network_of(peer))
        if not peer or found is None or found.count <= FREE_FAILURES or now - found.last_ns > _FORGOTTEN_NS:
            return True
        if now - found.looked_at_ns < _PACE_NS:
            return False
        found.looked_at_ns = now
        return True

    def failed(self, peer: str) -> float:
        """Note a failure; after how many seconds it should be answered."""
        now, network = self._clock.monotonic_ns(), network_of(peer)
        found = self._failed.get(network)
        if found is None or now - found.last_ns > _FORGOTTEN_NS:
            found = self._failed[network] = _Failures(0, now, now)
        found.count += 1
        found.last_ns = now
        self._failed.move_to_end(network)
        if len(self._failed) > self._addresses_max:
            self._failed.popitem(last=False)
        doublings = min(found.count - 1, 10)
        return min(self._delay_seconds * (1 << doublings), max(DELAY_SECONDS_MAX, self._delay_seconds))

    def __len__(self) -> int:
        return len(self._failed)


def network_of(peer: str) -> str:
    try:
        address: IPv4Address | IPv6Address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return f"{int(address) >> _NETWORK_BITS:x}/64"
    return str(address)
