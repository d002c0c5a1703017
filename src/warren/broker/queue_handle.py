"""Queues that fail are made again, while the others serve (checklist QP-05).

    an error out of a queue's own code ──▶ that life ends; who waits is told ──▶ prequeue ──▶ a new life
                                                 │
                                                 └─ too often in too short a time ──▶ it stays down, and says why

A new life has what is durable or on its way there: ready messages as they were, pending ones ready again and flagged.
Tags of an earlier life are not accepted. A refusal is no failure, and does not come here. Where one piece of work had
touched several queues all of them are made again, for all are ahead of the log; it counts only against the one whose
code failed.

The lock outlives the lives: whoever has it has the queue to himself, whichever life it is in.

What a queue is when it starts: decided by itself, from what it finds, each time (S1 §Startup; QP-03, QP-04, C-11).

    catalog: is it there, how was it asked for?  ─┐
    index:   is anything of it on disk?           ├─▶ role, afresh or recovered ──▶ backing queue ──▶ `queue.Queue`
    role:    regular, or by a hook master/mirror ─┘

A supervisor starts every queue here, the first time and after a crash, and remembers nothing of what it was before. So
a queue that was made afresh recovers when it is started again, and one that was a master comes back as a mirror if that
is what the hook says by then. Only `regular` is required (C-11): other roles are proxies around the same backing queue.

A supervised queue, as the memory monitor sees it: each call takes the queue's lock, and one that is down rests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from warren.base.environment import Clock
from warren.base.errors import Damage, Refused, WarrenError
from warren.base.ids import Epoch, QueueId
from warren.base.messages import QueuePlace
from warren.base.threads import Background, Condition, Threads
from warren.broker.consumers import Consumers
from warren.broker.errors import QueueDeleted, QueueDown, QueuesClosed
from warren.broker.queue import Queue, QueueContext
from warren.broker.queue_arguments import QueueArguments, monotonic_ms
from warren.broker.storage import BackingKinds, places_of
from warren.broker.unit_of_work import UnitOfWork
from warren.catalog.queues import QueueRow as Row
from warren.queue_index.batch import IndexBatch
from warren.queue_index.row_format import Counters
from warren.queues.backing_queue import BackingQueue
from warren.queues.settings import QueueSettings

LookUp = Callable[[QueueId], Row]  # refuses what is not there any more
Recover = Callable[[QueuePlace, Epoch], Counters]


class QueueRole(StrEnum):
    REGULAR = "regular"
    MASTER = "master"
    MIRROR = "mirror"


class StartReason(NamedTuple):
    """What was decided."""

    role: QueueRole
    is_fresh: bool


RoleOf = Callable[[Row], QueueRole]
Proxy = Callable[[BackingQueue], BackingQueue]


class QueueStarter:
    """Starts queues. Keeps nothing about them."""

    def __init__(
        self,
        look_up: LookUp,
        recover: Recover,
        wait: Callable[[Epoch], None],
        kinds: BackingKinds,
        around: QueueContext,
        role_of: RoleOf = lambda row: QueueRole.REGULAR,
        proxies: Mapping[QueueRole, Proxy] | None = None,
    ) -> None:
        self._look_up = look_up
        self._recover = recover
        self._wait = wait
        self._kinds = kinds
        self._around = around
        self._role_of = role_of
        self._proxies = dict(proxies or {})

    def start(
        self,
        id_: QueueId,
        incarnation: int,
        newest: Epoch,
        row: Row | None = None,
        is_new: bool = False,
        starting: IndexBatch | None = None,
    ) -> tuple[StartReason, Queue]:
        """A queue, ready to serve, with everything that was written up to an epoch. `row`: as the catalog has it now;
        looked up if it is not given. `is_new`: it was declared just now, and the index is not read. `starting`: what
        is written before the queue may serve goes there, and the caller ends it and waits for it."""
        self._wait(newest)  # what was written and is on its way is there then, and what is read is durable
        row = row or self._look_up(id_)
        arguments = QueueArguments.from_table(row.arguments)
        places = places_of(row.id, arguments) if row.durable else []
        found = {place: Counters() if is_new else self._recover(place, newest) for place in places}
        beginning = StartReason(self._role_of(row), all(each == Counters() for each in found.values()))
        backing = self._kinds.make(id_, row.durable, arguments, found, newest, starting)
        if beginning.role is not QueueRole.REGULAR:
            backing = self._proxied(beginning.role, row, backing)
        return beginning, Queue(id_, row.name, arguments, backing, incarnation, self._around)

    def _proxied(self, role: QueueRole, row: Row, backing: BackingQueue) -> BackingQueue:
        if role not in self._proxies:
            raise Refused(f"queue {row.name!r} cannot be a {role} here: nothing makes one")
        return self._proxies[role](backing)


_NEVER = Epoch(0)


class QueueHandle:
    """A queue through all its lives."""

    __slots__ = (
        "_ended",
        "_queue",
        "epoch",
        "failed_ms",
        "id",
        "incarnation",
        "is_going",
        "is_starting",
        "lock",
        "name",
        "subscribers",
    )

    def __init__(self, id_: QueueId, name: str, lock: Condition) -> None:
        self.id = id_
        self.name = name
        self.lock = lock
        self.epoch = _NEVER  # of what was written last
        self.incarnation = 0
        self.is_starting = False
        self.is_going = False  # its name is being removed from the catalog
        self.failed_ms: deque[int] = deque()
        self.subscribers = Consumers()
        self._queue: Queue | None = None
        self._ended: WarrenError | None = None  # why there will be no other life

    @property
    def queue(self) -> Queue | None:
        """Its present life; None if it has none. Under the lock, as all that follows."""
        queue = self._queue
        return queue if queue is not None and queue.failure is None else None

    def serving(self) -> Queue:
        """Its present life, or why there is none."""
        queue = self._queue
        if queue is not None and queue.failure is None:
            return queue
        raise self._ended or QueueDown(f"queue {self.name!r} has just failed", "it is made again: ask once more")

    def come_up(self) -> None:
        """Without the lock: wait for a start that is under way."""
        if self.is_starting:
            with self.lock:
                while self.is_starting:
                    self.lock.wait()

    def live(self, queue: Queue) -> None:
        queue.subscribers = self.subscribers
        self.subscribers.is_single_active = queue.arguments.is_single_active
        self._queue = queue
        self.subscribers.schedule_if_able()

    def end(self, reason: WarrenError) -> None:
        """For good."""
        self._ended = reason
        self.subscribers.tell(reason)
        if self._queue is not None:
            self._queue.line.tell(reason)
            self._queue = None

    @property
    def is_ended(self) -> bool:
        return self._ended is not None

    @property
    def is_deleted(self) -> bool:
        return isinstance(self._ended, QueueDeleted)


class QueueSupervisor:
    def __init__(
        self,
        prequeue: QueueStarter,
        settings: QueueSettings,
        threads: Threads,
        clock: Clock,
        told: Callable[[str], None],
        background: Background | None = None,
    ) -> None:
        self._task = (background or Background()).task("queue-restart", "a queue that failed is not restarted")
        self._prequeue = prequeue
        self._settings = settings
        self._threads = threads
        self._clock = clock
        self._told = told  # what an operator should know

    def start(
        self,
        id_: QueueId,
        name: str,
        row: Row | None = None,
        is_new: bool = False,
        starting: IndexBatch | None = None,
    ) -> QueueHandle:
        """A queue that was not served yet. An error of the first start is raised to the caller, except damage: with
        that the queue is down. The rest is as in `QueueStarter.start`."""
        handle = QueueHandle(id_, name, self._threads.condition())
        handle.incarnation = 1
        try:
            _, queue = self._prequeue.start(id_, handle.incarnation, handle.epoch, row, is_new, starting)
        except Damage as damage:  # it stays: another try would read the same bytes
            reason = QueueDown(
                f"queue {name!r} is down: {damage}", "what is durable is kept: mend the cause, then restart"
            )
            self._told(reason.what)
            handle.end(reason)
            return handle
        handle.live(queue)
        return handle

    def failed(
        self, handles: list[QueueHandle], work: UnitOfWork, error: BaseException, is_patient: bool = True
    ) -> BaseException:
        """Without any lock: queues that were touched by work that ended in an error. What to tell the caller. A caller
        that is not patient (the event loop) does not wait: another thread restarts them."""
        for handle in handles:
            self._restart(handle, error, work.at_work is None or work.at_work.id == handle.id, is_patient)
        if isinstance(error, WarrenError) or not isinstance(error, Exception):
            return error
        name = work.at_work.name if work.at_work is not None else handles[0].name
        return QueueDown(f"queue {name!r} failed: {error!r}", "it was made again from what is durable: ask once more")

    def _restart(self, handle: QueueHandle, error: BaseException, is_to_blame: bool, is_patient: bool) -> None:
        with handle.lock:
            if handle.queue is not None or handle.is_starting or handle.is_ended:
                return  # somebody else was quicker
            handle.is_starting = True
        restart = partial(self._restarted, handle, error, is_to_blame)
        try:
            if not is_patient:
                self._threads.start("warren-restart", partial(self._restarted_in_background, restart))
                return
        except RuntimeError as no_thread:
            self._told(f"queue {handle.name!r} is restarted without a thread of its own: {no_thread}")
        restart()

    def _restarted_in_background(self, restart: Callable[[], None]) -> None:
        self._task.run(restart)

    def _restarted(self, handle: QueueHandle, error: BaseException, is_to_blame: bool) -> None:
        try:
            if is_to_blame and self._is_counted_down(handle, error):
                return
            self._told(f"queue {handle.name!r} failed and is made again: {error!r}")
            while (failure := self._tried(handle)) is not None:
                error = failure
                if self._is_counted_down(handle, error):
                    return
        except Exception as defect:
            with handle.lock:
                handle.end(QueueDown(f"queue {handle.name!r} could not be restarted: {defect!r}", "restart the broker"))
            raise
        finally:
            with handle.lock:
                handle.is_starting = False
                handle.lock.notify_all()

    def _tried(self, handle: QueueHandle) -> Exception | None:
        """Begin a new life; None, or what went wrong."""
        try:
            _, queue = self._prequeue.start(handle.id, handle.incarnation + 1, handle.epoch)
        except Exception as error:
            return error
        with handle.lock:
            handle.incarnation += 1
            if not handle.is_ended:
                handle.live(queue)
        return None

    def _is_counted_down(self, handle: QueueHandle, error: BaseException) -> bool:
        """Count a failure; whether it was one too many."""
        settings, now = self._settings, monotonic_ms(self._clock)
        failed = handle.failed_ms
        failed.append(now)
        while failed and failed[0] < now - settings.restarts_seconds * 1000:
            failed.popleft()
        if len(failed) <= settings.restarts_max and not isinstance(error, Refused | QueuesClosed):
            return False
        reason = QueueDown(
            f"queue {handle.name!r} is down: it failed {len(failed)} times in {settings.restarts_seconds:g} s, "
            f"the last time with {error!r}",
            "what is durable is kept: mend the cause and open the database again",
        )
        self._told(reason.what)
        with handle.lock:
            handle.end(reason)
        return True


class PagedQueueAdapter:
    """Is a `memory_monitor.Paged`."""

    __slots__ = ("_handle", "_working", "id")

    def __init__(
        self, handle: QueueHandle, working: Callable[[QueueHandle], AbstractContextManager[UnitOfWork]]
    ) -> None:
        self.id: QueueId = handle.id
        self._handle = handle
        self._working = working

    def ram_duration(self) -> float:
        with self._handle.lock:
            queue = self._handle.queue
            return math.inf if queue is None else queue.backing.ram_duration()

    def set_target(self, seconds: float | None) -> None:
        with self._handle.lock:
            queue = self._handle.queue
            if queue is not None:
                queue.backing.set_ram_duration_target(seconds)

    def page(self) -> bool:
        try:
            with self._working(self._handle) as work:
                queue = self._handle.queue
                if queue is None:
                    return False
                work.touch(queue)
                return queue.backing.page()
        except WarrenError:
            return False  # it has failed, which the supervisor has seen to; whoever puts need not hear of it
