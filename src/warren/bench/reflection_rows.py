"""`warren bench reflection`: which rows there are; docs/benchmarks.md says what they mean."""

from __future__ import annotations

from warren.bench.reflection_modes import mode_scenarios
from warren.bench.run import BenchRun
from warren.bench.suite import Suite

REFLECTION: Suite[BenchRun] = Suite(mode_scenarios())
