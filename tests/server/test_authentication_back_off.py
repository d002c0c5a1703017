"""Back-off after failed logins: how long, for which peers, and for how many."""

from __future__ import annotations

from warren.server.authentication import FREE_FAILURES, BackOff
from warren.testing.fakes import ManualClock

SECOND_NS = 1_000_000_000


def test_each_failure_of_an_address_waits_longer_up_to_a_limit() -> None:
    back_off = BackOff(ManualClock(), 1.0)
    assert [back_off.failed("10.0.0.1") for _ in range(6)] == [1.0, 2.0, 3.0, 3.0, 3.0, 3.0]
    assert back_off.failed("10.0.0.2") == 1.0


def test_failures_are_forgotten_after_a_minute() -> None:
    clock = ManualClock()
    back_off = BackOff(clock, 1.0)
    back_off.failed("10.0.0.1")
    back_off.failed("10.0.0.1")
    clock.advance_ns(61 * SECOND_NS)
    assert back_off.failed("10.0.0.1") == 1.0


def test_repeated_failures_are_checked_once_a_second() -> None:
    clock = ManualClock()
    back_off = BackOff(clock, 1.0)
    for _ in range(FREE_FAILURES):
        assert back_off.may_try("10.0.0.1")
        back_off.failed("10.0.0.1")
    assert back_off.may_try("10.0.0.1")
    back_off.failed("10.0.0.1")
    assert not back_off.may_try("10.0.0.1")
    assert back_off.may_try("10.0.0.2")
    clock.advance_ns(SECOND_NS)
    assert back_off.may_try("10.0.0.1")
    assert not back_off.may_try("10.0.0.1")
    clock.advance_ns(61 * SECOND_NS)
    assert back_off.may_try("10.0.0.1") and back_off.may_try("10.0.0.1")


def test_sockets_of_this_machine_may_always_try() -> None:
    back_off = BackOff(ManualClock(), 1.0)
    for _ in range(2 * FREE_FAILURES):
        back_off.failed("")
    assert back_off.may_try("")


def test_addresses_of_one_network_count_as_one() -> None:
    back_off = BackOff(ManualClock(), 1.0)
    assert back_off.failed("2001:db8::1") == 1.0
    assert back_off.failed("2001:db8::ffff:1%eth0") == 2.0
    assert back_off.failed("2001:db8:0:1::1") == 1.0
    assert back_off.failed("10.0.0.1") == 1.0
    assert back_off.failed("::ffff:10.0.0.1") == 2.0
    assert back_off.failed("no address") == 1.0


def test_only_so_many_addresses_are_remembered() -> None:
    back_off = BackOff(ManualClock(), 1.0, addresses_max=3)
    for number in range(10):
        back_off.failed(f"10.0.0.{number}")
    assert len(back_off) == 3
    assert back_off.failed("10.0.0.9") == 2.0
    assert back_off.failed("10.0.0.1") == 1.0
