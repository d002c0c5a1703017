"""Slices of one measurement become one reading, as if it had not been cut."""

from __future__ import annotations

import numpy as np
import pytest

from tools.bench.amqp.slices import Rate, joined, rate_of, times_of
from tools.bench.generators.times import times_to_readings


def test_the_rate_is_messages_over_seconds_of_all_slices() -> None:
    slices = [{"drain": Rate(300_000, 2.0)}, {"drain": rate_of({"received": 500_000, "seconds": 3.0}, "received")}]
    assert joined(slices) == {"drain": 160_000}


@pytest.mark.parametrize("prefix", ["", "bare_"])
def test_percentiles_are_those_of_all_times_together(prefix: str) -> None:
    rng = np.random.default_rng(1)
    parts = [rng.exponential(2, 5000), rng.exponential(50, 500), np.array([0.0, 1e-7, 1e7])]
    others = times_to_readings([1e9], "other_")
    slices = [times_of({**times_to_readings(part, prefix), **others}, "paced", prefix) for part in parts]
    found = joined(slices)
    assert found["paced_p50"] == pytest.approx(np.percentile(np.concatenate(parts), 50), rel=0.005)
    assert found["paced_p99"] == pytest.approx(np.percentile(np.concatenate(parts), 99), rel=0.005)


def test_a_million_times_are_reported_in_few_numbers() -> None:
    readings = times_to_readings(np.random.default_rng(1).exponential(2, 1_000_000))
    assert sum(count for name, count in readings.items() if name.startswith("times ")) == 1_000_000
    assert len(readings) < 10_000


def test_nothing_is_reported_of_nothing() -> None:
    assert times_to_readings([]) == {}
