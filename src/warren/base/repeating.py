"""Something done again and again beside a piece of work: a lease that is renewed, a progress that is asked for.

with repeatedly(threads, "warren-pin", 20.0, renew):
    work()

The first time comes when so many seconds have passed. The call runs in a thread of its own; when the body ends, one
under way is waited for, and none follows. A call that raises is logged, and the next one comes in its time
(base/background).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from warren.base.background import Background
from warren.base.threads import Threads


@contextmanager
def repeatedly(threads: Threads, name: str, seconds: float, call: Callable[[], object]) -> Iterator[None]:
    bell, is_over = threads.condition(), False
    task = Background().task(name, "a repeated call is not done")

    def run() -> None:
        while True:
            with bell:
                if not is_over:
                    bell.wait(seconds)
                if is_over:
                    return
            task.run(call)

    thread = threads.start(name, run)
    try:
        yield
    finally:
        with bell:
            is_over = True
            bell.notify_all()
        thread.join()
