"""Callbacks when an epoch is durable, for callers that do not wait: pipelined puts, publisher confirms.

    put ──epoch──▶ (epoch, callback) in line ──▶ a thread waits for the newest epoch ──▶ calls all callbacks up to it

The thread leads the commit: requests that arrive during a sync are the next batch. A callback may take its time and may
put again: only other callbacks wait for it. A callback that raises is an alarm (base/threads) and concerns its own
caller only: the others are called. An error of the wait itself is passed to every callback; the server ends the process
then (`Server.fail`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from warren.base.ids import Epoch
from warren.base.threads import Background, StartedThread, Threads

OnDurable = Callable[[BaseException | None], None]  # None: it is durable


class Confirms:
    def __init__(self, threads: Threads, wait: Callable[[Epoch], None], background: Background | None = None) -> None:
        self._threads = threads
        self._task = (background or Background()).task("confirms", "a publisher is not notified of a durable epoch")
        self._wait = wait
        self._bell = threads.condition()
        self._waiting: deque[tuple[Epoch, OnDurable]] = deque()  # epochs only grow, nearly: a few may be out of order
        self._is_over = False
        self._thread: StartedThread | None = None

    def add(self, epoch: Epoch, callback: OnDurable) -> None:
        with self._bell:
            is_over = self._is_over
            if not is_over:
                self._waiting.append((epoch, callback))
                if self._thread is None:
                    self._thread = self._threads.start("warren-confirms", self._run)
                if len(self._waiting) == 1:
                    self._bell.notify_all()
        if is_over:  # closing: the caller waits in its own thread
            callback(self._wait_for(epoch))

    def stop(self) -> None:
        """After all callbacks that were added."""
        with self._bell:
            self._is_over = True
            self._bell.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._bell:
                while not self._waiting:
                    if self._is_over:
                        return
                    self._bell.wait()
                waiting, self._waiting = self._waiting, deque()
            error = self._wait_for(max(epoch for epoch, _ in waiting))
            self._notify(waiting, error)

    def _notify(self, waiting: Iterable[tuple[Epoch, OnDurable]], error: BaseException | None) -> None:
        is_good = True
        for _, callback in waiting:
            try:
                callback(error)
            except Exception as failure:
                is_good = False
                self._task.failed(failure)
        if is_good:
            self._task.succeeded()

    def _wait_for(self, epoch: Epoch) -> BaseException | None:
        try:
            self._wait(epoch)
        except Exception as error:
            return error
        return None
