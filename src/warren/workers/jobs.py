"""Jobs that other processes do for the owner of a directory: each is leased for some seconds.

    owner     lease      a request under a new name: what to read, where to write            ──▶  JobRequest
    others    work       hold no lock; write below the place that the request names
              renew      the lease expires so many seconds from now
    owner     accept     checks the result, commits it                                       ◀──  result
              cancel     discards the request

A worker may die: its lease expires, and what it has written is discarded, at the latest when the directory is opened
again. Leases are in the owner's memory, so none outlives it. Names are not given twice.

Single-threaded: the owner calls with its lock held. Only `is_active` may be called without it.
Elsewhere: what a request says, how a result is committed (log/compaction/handover, snapshot/tables/bulk).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from warren.base.environment import Clock, Random
from warren.base.errors import Refused

LEASE_SECONDS = 3600.0
Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class JobRequest(Generic[Work]):
    name: str
    work: Work
    expires_ns: int  # monotonic


class JobLeases(Generic[Work]):
    """Requests of one kind. `discard` removes what was written for one."""

    def __init__(self, clock: Clock, rng: Random, kind: str, discard: Callable[[Work], None]) -> None:
        self._clock = clock
        self._rng = rng
        self._kind = kind
        self._discard = discard
        self._leased: dict[str, JobRequest[Work]] = {}

    def new_name(self) -> str:
        return f"{self._kind}-{self._rng.id64():016x}"

    def lease(self, name: str, work: Work, seconds: float) -> None:
        self._leased[name] = JobRequest(name, work, self._expires_ns(seconds))

    def renew(self, name: str, seconds: float) -> None:
        self.lease(name, self._request(name).work, seconds)

    @contextmanager
    def accept(self, name: str) -> Iterator[Work]:
        """The request whose result is committed in the `with`; it ends with it, accepted or not."""
        self.discard_expired()
        work = self._request(name).work
        del self._leased[name]
        try:
            yield work
        finally:
            self._discard(work)

    def cancel(self, name: str) -> None:
        with self.accept(name):
            pass

    def is_active(self) -> bool:
        """Whether a lease has not expired yet."""
        now_ns = self._clock.monotonic_ns()
        return any(now_ns <= request.expires_ns for request in list(self._leased.values()))

    def discard_expired(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for name, request in list(self._leased.items()):
            if now_ns > request.expires_ns:
                del self._leased[name]
                self._discard(request.work)

    def __contains__(self, name: str) -> bool:
        return name in self._leased

    def _request(self, name: str) -> JobRequest[Work]:
        if name not in self._leased:
            raise Refused(f"there is no job '{name}', or its lease has expired", "request another one")
        return self._leased[name]

    def _expires_ns(self, seconds: float) -> int:
        return self._clock.monotonic_ns() + int(seconds * 1e9)
