"""Queue handles: a queue through all its incarnations, started from the catalog and the index, restarted if it fails.

    QueueHandle ──▶ Queue (one incarnation) ──▶ backing queue
         ▲
    QueueSupervisor     an error out of a queue's own code ──▶ the incarnation ends, getters get an error
         │                  ├─▶ QueueStarter ──▶ the next incarnation (checklist QP-05)
         │                  └─▶ too often in too short a time: the queue stays down, and reports why
    QueueStarter        catalog: does it exist, with which arguments?  ─┐
                        index:   is anything of it on disk?             ├─▶ role, fresh or recovered ──▶ backing queue
                        role:    regular, or by a hook master/mirror   ─┘

A new incarnation has what is durable or about to be: ready messages as they were, pending ones ready again and flagged.
Tags of an earlier incarnation are not accepted. A refusal is not a failure. Where one unit of work had touched several
queues all of them are restarted, for all are ahead of the log; the failure counts only against the queue whose code
failed.

The starter (S1 §Startup, `rabbit_prequeue`; QP-03, QP-04, C-11) decides anew at each start, and keeps nothing about
earlier ones. So a queue that was fresh recovers when it is restarted, and a master comes back as a mirror if the hook
says so by then. Only `regular` is required (C-11): other roles are proxies around the same backing queue.

Invariant: the lock of a handle outlives the incarnations; its holder has the queue to itself, in any incarnation.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from warren.base.environment import Clock, monotonic_ms
from warren.base.errors import Damage, Refused, WarrenError
from warren.base.ids import Epoch, QueueId, SequenceId
from warren.base.messages import QueuePlace
from warren.base.threads import Background, Condition, Threads
from warren.broker.consumers import Consumers
from warren.broker.counters import QueueCounters
from warren.broker.errors import QueueDeleted, QueueDown, QueuesClosed
from warren.broker.queue import BrokerQueue, QueueContext
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


class StartDecision(NamedTuple):
    role: QueueRole
    is_fresh: bool


Requeues = Callable[[QueuePlace, Epoch], Mapping[SequenceId, int]]
RoleOf = Callable[[Row], QueueRole]
Proxy = Callable[[BackingQueue], BackingQueue]


class QueueStarter:
    """Stateless."""

    def __init__(
        self,
        look_up: LookUp,
        recover: Recover,
        wait: Callable[[Epoch], None],
        kinds: BackingKinds,
        context: QueueContext,
        role_of: RoleOf = lambda row: QueueRole.REGULAR,
        proxies: Mapping[QueueRole, Proxy] | None = None,
        requeues: Requeues = lambda place, newest: {},
    ) -> None:
        self._look_up = look_up
        self._recover = recover
        self._wait = wait
        self._kinds = kinds
        self._context = context
        self._role_of = role_of
        self._proxies = dict(proxies or {})
        self._requeues = requeues

    def start(
        self,
        id_: QueueId,
        incarnation: int,
        newest: Epoch,
        row: Row | None = None,
        is_new: bool = False,
        starting: IndexBatch | None = None,
    ) -> tuple[StartDecision, BrokerQueue]:
        """A queue, ready to serve, with everything that was written up to an epoch. `row`: as the catalog has it now;
        None: it is looked up. `is_new`: it was declared just now, and the index is not read. `starting`: the batch for
        what is written before the queue may serve; the caller ends it and waits for it."""
        self._wait(newest)  # then pending writes are readable, and what is read is durable
        row = row or self._look_up(id_)
        arguments = self._context.arguments_of(row)
        places = places_of(row.id, arguments) if row.durable else []
        found = {place: Counters() if is_new else self._recover(place, newest) for place in places}
        decision = StartDecision(self._role_of(row), all(each == Counters() for each in found.values()))
        backing = self._kinds.make(id_, row.durable, arguments, found, newest, starting)
        if decision.role is not QueueRole.REGULAR:
            backing = self._proxied(decision.role, row, backing)
        queue = BrokerQueue(id_, row.name, arguments, backing, incarnation, self._context)
        if not is_new and arguments.counts_deliveries:
            for place in places:
                queue.delivery_counts.load(place.level, self._requeues(place, newest))
        return decision, queue

    def _proxied(self, role: QueueRole, row: Row, backing: BackingQueue) -> BackingQueue:
        if role not in self._proxies:
            raise Refused(f"queue {row.name!r} cannot be a {role} here: there is no proxy for it")
        return self._proxies[role](backing)


_NEVER = Epoch(0)


class QueueHandle:
    """Is a `memory_monitor.Paged`."""

    __slots__ = (
        "_ended",
        "_queue",
        "_unit_of_work",
        "consumers",
        "counts",
        "epoch",
        "failed_ms",
        "id",
        "incarnation",
        "is_deleting",
        "is_starting",
        "lock",
        "name",
    )

    def __init__(
        self, id_: QueueId, name: str, lock: Condition, unit_of_work: Callable[[Sequence[QueueHandle]], UnitOfWork]
    ) -> None:
        self.id = id_
        self.name = name
        self.lock = lock
        self.epoch = _NEVER  # of the last write
        self.incarnation = 0
        self.is_starting = False
        self.is_deleting = False  # its name is being removed from the catalog
        self.failed_ms: deque[int] = deque()
        self.consumers = Consumers()
        self.counts = QueueCounters()
        self._unit_of_work = unit_of_work
        self._queue: BrokerQueue | None = None
        self._ended: WarrenError | None = None  # why there will be no further incarnation

    @property
    def queue(self) -> BrokerQueue | None:
        """The present incarnation; None if there is none. Under the lock, as everything up to `is_deleted`."""
        queue = self._queue
        return queue if queue is not None and queue.failure is None else None

    def serving(self) -> BrokerQueue:
        """The present incarnation; raises the reason if there is none."""
        queue = self._queue
        if queue is not None and queue.failure is None:
            return queue
        raise self._ended or QueueDown(f"queue {self.name!r} has just failed", "it is restarted: try again")

    def wait_started(self) -> None:
        """Without the lock: wait for a start that is under way."""
        if self.is_starting:
            with self.lock:
                while self.is_starting:
                    self.lock.wait()

    def start(self, queue: BrokerQueue) -> None:
        """Serve with this incarnation."""
        queue.consumers = self.consumers
        self.consumers.is_single_active = queue.arguments.is_single_active
        self._queue = queue
        queue.schedule_delivery()

    def end(self, reason: WarrenError) -> None:
        """For good."""
        self._ended = reason
        self.consumers.cancel(reason)
        if self._queue is not None:
            self._queue.getters.fail(reason)
            self._queue = None

    @property
    def is_ended(self) -> bool:
        return self._ended is not None

    @property
    def is_deleted(self) -> bool:
        return isinstance(self._ended, QueueDeleted)

    # -- for the memory monitor, without the lock ------------------------------------------------------------------

    def ram_duration(self) -> float:
        with self.lock:
            queue = self.queue
            return math.inf if queue is None else queue.backing.ram_duration()

    def set_target(self, seconds: float | None) -> None:
        with self.lock:
            queue = self.queue
            if queue is not None:
                queue.backing.set_ram_duration_target(seconds)

    def page(self) -> bool:
        try:
            with self._unit_of_work([self]) as work:
                queue = self.queue
                if queue is None:
                    return False
                work.touch(queue)
                return queue.backing.page()
        except WarrenError:
            return False  # it has failed, and the supervisor restarts it: no concern of the publisher that pages


class QueueSupervisor:
    def __init__(
        self,
        starter: QueueStarter,
        settings: QueueSettings,
        threads: Threads,
        clock: Clock,
        report_problem: Callable[[str], None],
        unit_of_work: Callable[[Sequence[QueueHandle]], UnitOfWork],
        background: Background | None = None,
    ) -> None:
        self._task = (background or Background()).task("queue-restart", "a queue that failed is not restarted")
        self._starter = starter
        self._settings = settings
        self._threads = threads
        self._clock = clock
        self._report_problem = report_problem
        self._unit_of_work = unit_of_work

    def start(
        self,
        id_: QueueId,
        name: str,
        row: Row | None = None,
        is_new: bool = False,
        starting: IndexBatch | None = None,
    ) -> QueueHandle:
        """The first start of a queue. An error is raised to the caller, except damage: with that the queue is down. The
        parameters are those of `QueueStarter.start`."""
        handle = QueueHandle(id_, name, self._threads.condition(), self._unit_of_work)
        handle.incarnation = 1
        try:
            _, queue = self._starter.start(id_, handle.incarnation, handle.epoch, row, is_new, starting)
        except Damage as damage:  # permanent: another start would read the same bytes
            reason = QueueDown(
                f"queue {name!r} is down: {damage}", "what is durable is kept: fix the cause, then restart"
            )
            self._report_problem(reason.what)
            handle.end(reason)
            return handle
        handle.start(queue)
        return handle

    def failed(self, work: UnitOfWork, error: BaseException) -> BaseException:
        """Without any lock: restart the queues that a unit of work touched before it failed. Returns the error for the
        caller. A caller that is not patient (the event loop) does not wait: another thread restarts them."""
        ids = {queue.id for queue in work.touched}
        handles = [handle for handle in work.handles if handle.id in ids]
        for handle in handles:
            is_to_blame = work.current_queue is None or work.current_queue.id == handle.id
            self._restart(handle, error, is_to_blame, work.is_patient)
        if isinstance(error, WarrenError) or not isinstance(error, Exception):
            return error
        name = work.current_queue.name if work.current_queue is not None else handles[0].name
        return QueueDown(f"queue {name!r} failed: {error!r}", "it was restarted from what is durable: try again")

    def _restart(self, handle: QueueHandle, error: BaseException, is_to_blame: bool, is_patient: bool) -> None:
        with handle.lock:
            if handle.queue is not None or handle.is_starting or handle.is_ended:
                return  # another thread was first
            handle.is_starting = True
        restart = partial(self._restart_until_served, handle, error, is_to_blame)
        try:
            if not is_patient:
                self._threads.start("warren-restart", partial(self._run_restart, restart))
                return
        except RuntimeError as no_thread:
            self._report_problem(f"queue {handle.name!r} is restarted without a separate thread: {no_thread}")
        restart()

    def _run_restart(self, restart: Callable[[], None]) -> None:
        self._task.run(restart)

    def _restart_until_served(self, handle: QueueHandle, error: BaseException, is_to_blame: bool) -> None:
        try:
            if is_to_blame and self._exceeds_restarts(handle, error):
                return
            self._report_problem(f"queue {handle.name!r} failed and is restarted: {error!r}")
            while (failure := self._try_restart(handle)) is not None:
                error = failure
                if self._exceeds_restarts(handle, error):
                    return
        except Exception as defect:
            with handle.lock:
                handle.end(QueueDown(f"queue {handle.name!r} could not be restarted: {defect!r}", "restart the broker"))
            raise
        finally:
            with handle.lock:
                handle.is_starting = False
                handle.lock.notify_all()

    def _try_restart(self, handle: QueueHandle) -> Exception | None:
        """None if it serves, otherwise the error."""
        try:
            _, queue = self._starter.start(handle.id, handle.incarnation + 1, handle.epoch)
        except Exception as error:
            return error
        with handle.lock:
            handle.incarnation += 1
            if not handle.is_ended:
                handle.start(queue)
        return None

    def _exceeds_restarts(self, handle: QueueHandle, error: BaseException) -> bool:
        """Count a failure; whether that was one too many, and the queue is down."""
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
            "what is durable is kept: fix the cause and open the database again",
        )
        self._report_problem(reason.what)
        with handle.lock:
            handle.end(reason)
        return True
