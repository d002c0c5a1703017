"""Ingress and egress rates."""

from __future__ import annotations

import math

import pytest

from warren.queues.variable_queue import Rates
from warren.testing.fakes import ManualClock

SECOND_NS = 1_000_000_000


def test_a_steady_flow_is_what_is_reported_in_the_end() -> None:
    clock = ManualClock()
    rates = Rates(clock, half_life_ms=1000)
    for _ in range(30):
        rates.published += 100
        rates.fetched += 40
        clock.advance_ns(SECOND_NS)
        reported = rates.ingress, rates.egress
    assert list(reported) == pytest.approx([100, 40], rel=1e-6)
    assert rates.both == pytest.approx(140, rel=1e-6)
    assert rates.duration(280) == pytest.approx(2)


def test_after_a_half_life_what_was_counts_half() -> None:
    clock = ManualClock()
    rates = Rates(clock, half_life_ms=1000)
    rates.published = 100
    clock.advance_ns(SECOND_NS)
    assert rates.ingress == pytest.approx(50)
    clock.advance_ns(SECOND_NS)
    assert rates.ingress == pytest.approx(25)


def test_the_polling_frequency_makes_no_difference_to_an_idle_queue() -> None:
    clocks = [ManualClock(), ManualClock()]
    often, seldom = (Rates(clock, half_life_ms=1000) for clock in clocks)
    for rates, clock in zip((often, seldom), clocks, strict=True):
        rates.published = 100
        clock.advance_ns(SECOND_NS)
        assert rates.ingress == pytest.approx(50)
    for _ in range(10):
        clocks[0].advance_ns(SECOND_NS // 10)
        assert often.ingress > 0
    clocks[1].advance_ns(SECOND_NS)
    assert often.ingress == pytest.approx(seldom.ingress)


def test_nothing_moves_so_memory_lasts_for_ever() -> None:
    clock = ManualClock()
    rates = Rates(clock, half_life_ms=1000)
    assert rates.duration(5) == math.inf
    rates.published = 7
    assert rates.ingress == 0.0
