"""`warren bench reflection`: which rows there are; docs/benchmarks.md says what they mean."""

from __future__ import annotations

from tools.bench.reflection.modes import mode_scenarios
from tools.bench.run import BenchRun
from tools.bench.suite import Suite

REFLECTION: Suite[BenchRun] = Suite(mode_scenarios())
