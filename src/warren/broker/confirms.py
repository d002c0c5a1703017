"""Who is told when an epoch is durable, without waiting himself: pipelined puts, confirms.

    put ──epoch──▶ (epoch, callback) in line ──▶ a thread waits for the newest epoch ──▶ calls everybody up to it

The thread leads the commit itself: what arrives while it is at the disk is the next batch. Callbacks may take their
time and may put again: only other callbacks wait for them. A callback that raises is an alarm (base/threads) and
concerns its own caller only: the others are called. An error of the wait itself is passed to every callback; the server
ends the process then (`Server.fail`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from warren.base.ids import Epoch
from warren.base.threads import Background, StartedThread, Threads

Told = Callable[[BaseException | None], None]  # None: it is durable


class Confirms:
    def __init__(self, threads: Threads, wait: Callable[[Epoch], None], background: Background | None = None) -> None:
        self._threads = threads
        self._task = (background or Background()).task("confirms", "a publisher is not notified of a durable epoch")
        self._wait = wait
        self._bell = threads.condition()
        self._asked: deque[tuple[Epoch, Told]] = deque()  # epochs only grow, nearly: a few may have changed places
        self._is_over = False
        self._thread: StartedThread | None = None

    def add(self, epoch: Epoch, told: Told) -> None:
        with self._bell:
            is_over = self._is_over
            if not is_over:
                self._asked.append((epoch, told))
                if self._thread is None:
                    self._thread = self._threads.start("warren-confirms", self._run)
                if len(self._asked) == 1:
                    self._bell.notify_all()
        if is_over:  # it is being closed, and this one came last: he waits himself
            told(self._waited_for(epoch))

    def stop(self) -> None:
        """Everybody who asked is told first."""
        with self._bell:
            self._is_over = True
            self._bell.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._bell:
                while not self._asked:
                    if self._is_over:
                        return
                    self._bell.wait()
                asked, self._asked = self._asked, deque()
            error = self._waited_for(max(epoch for epoch, _ in asked))
            self._notify(asked, error)

    def _notify(self, asked: Iterable[tuple[Epoch, Told]], error: BaseException | None) -> None:
        is_good = True
        for _, told in asked:
            try:
                told(error)
            except Exception as failure:
                is_good = False
                self._task.failed(failure)
        if is_good:
            self._task.succeeded()

    def _waited_for(self, epoch: Epoch) -> BaseException | None:
        try:
            self._wait(epoch)
        except Exception as error:
            return error
        return None
