"""`warren bench reflection`: which rows there are; docs/benchmarks.md says what they mean."""

from __future__ import annotations

from warren.bench.reflection_modes import mode_scenarios
from warren.bench.run import Run
from warren.bench.suite import Suite

REFLECTION: Suite[Run] = Suite(mode_scenarios())
