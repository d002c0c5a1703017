"""The driver's pin, renewed for as long as a job runs: files stay for tasks that have not begun yet.

A task takes a pin of its own when it begins. A long job's last tasks begin late, so the plan's pin must not lapse
before them. When the driver dies nobody renews it, and it holds nothing longer than its seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from warren.base.errors import WarrenError
from warren.base.repeating import repeatedly
from warren.pipeline.planning import Plan, Planner

_log = logging.getLogger("warren.pipeline")


@contextmanager
def held(planner: Planner, plan: Plan) -> Iterator[None]:
    """Hold the plan's pin until the end of the body, then let it go."""
    if plan.pin is None:
        yield
        return
    seconds, pin = planner.options.pin_seconds, plan.pin

    def renew() -> None:
        nonlocal pin
        try:
            pin = planner.pins.renew(pin, seconds)
        except WarrenError as error:  # tasks that come too late are told so themselves
            _log.warning("the pin of the job could not be renewed: %s", error.what)

    try:
        with repeatedly(planner.machine.threads, "warren-job-pin", seconds / 3, renew):
            yield
    finally:
        planner.pins.release(pin)
