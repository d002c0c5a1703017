"""How the process of a stream's reader ends. Spark does not call `stop` when a query ends, though its protocol has it:
the process that plans the batches gets a SIGTERM and is gone, with its last pin left to lapse, an hour by default. So
the reader is stopped when the signal comes, and then the process ends of it as it would have.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress


def call_at_sigterm(stop: Callable[[], None]) -> None:
    """Have this called before SIGTERM ends the process; only where nobody else listens to that signal."""

    def end(number: int, frame: object) -> None:
        stop()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with suppress(ValueError):  # not the main thread, so not Spark's process for a reader
            signal.signal(signal.SIGTERM, end)
