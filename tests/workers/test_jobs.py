"""Leases of jobs: renewed, accepted, cancelled or expired; what was written for a job is always discarded."""

from __future__ import annotations

import pytest

from warren.base.errors import Refused
from warren.testing.fakes import ManualClock, SeededRandom
from warren.workers.jobs import JobLeases

SECONDS = 10.0


class Jobs:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.discarded: list[str] = []
        self.leases = JobLeases[str](self.clock, SeededRandom(1), "test", self.discarded.append)

    def lease(self, work: str) -> str:
        name = self.leases.new_name()
        self.leases.lease(name, work, SECONDS)
        return name

    def wait(self, seconds: float) -> None:
        self.clock.advance_ns(int(seconds * 1e9))


def test_a_job_is_accepted_once_and_discarded_afterwards() -> None:
    jobs = Jobs()
    name = jobs.lease("a")
    assert name.startswith("test-") and name in jobs.leases and jobs.leases.is_active()
    with jobs.leases.accept(name) as work:
        assert (work, jobs.discarded) == ("a", [])
    assert jobs.discarded == ["a"] and not jobs.leases.is_active()
    with pytest.raises(Refused, match=f"no job '{name}'"), jobs.leases.accept(name):
        pass


def test_a_result_that_is_refused_ends_its_job() -> None:
    jobs = Jobs()
    name = jobs.lease("a")
    with pytest.raises(ValueError, match="bad"), jobs.leases.accept(name):
        raise ValueError("bad")
    assert jobs.discarded == ["a"] and name not in jobs.leases


def test_a_lease_expires_unless_it_is_renewed() -> None:
    jobs = Jobs()
    first, second = jobs.lease("first"), jobs.lease("second")
    assert first != second
    jobs.wait(SECONDS * 0.7)
    jobs.leases.renew(first, SECONDS)
    jobs.wait(SECONDS * 0.7)
    assert jobs.leases.is_active()
    jobs.leases.discard_expired()
    assert jobs.discarded == ["second"]
    jobs.wait(SECONDS)
    assert not jobs.leases.is_active()
    with pytest.raises(Refused, match="its lease has expired"), jobs.leases.accept(first):
        pass
    assert jobs.discarded == ["second", "first"]
    with pytest.raises(Refused):
        jobs.leases.renew(first, SECONDS)


def test_a_cancelled_job_is_discarded() -> None:
    jobs = Jobs()
    jobs.leases.cancel(jobs.lease("a"))
    assert jobs.discarded == ["a"] and not jobs.leases.is_active()
    with pytest.raises(Refused):
        jobs.leases.cancel("unknown")
