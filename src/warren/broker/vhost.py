"""Vhost: its queues, the routing to them, the owners of exclusive queues, and units of work on queues.

    declare_queue · find_queue · delete_queue ──▶ QueueHandle        names and arguments are in the catalog
    execute ──▶ a unit of work on some queues           used by request_batch (AMQP) and queue_api (programs)
    timers ──▶ expired messages, unused queues, paging, acknowledgements
    policies ──▶ arguments in effect of queues, alternates of exchanges, limits of the vhost

Queues start when they are first used; queues with a TTL or `x-expires` start with the vhost, so that they expire
without a client.

Deleting: the name is removed first, by a change of the catalog that may be refused; as soon as the log has it, the
messages go. Both are durable when `delete_queue` returns. Meanwhile the queue accepts routed messages, and a request
for it by name waits. All deletions end in `_remove`: the name, its bindings, and the exchanges that are deleted with
these are one change of the catalog. Messages that a crash leaves without a queue are skipped by the next start (HS-06,
RC-02).

`delete` ends a vhost that is no longer in the catalog: its connections are closed already, and its queues go with their
messages, some of them in each session.

Changes of the catalog are applied to the routing in the catalog's order (`catalog.ChangeOrder`).

Invariants
* `routing` and `owners` are read and changed with `lock` held; nothing else is waited for meanwhile. The catalog has
  the truth about both, except owners: those are connections of this process.
* A queue that starts has the arguments in effect by the present `policies`. `apply_policies` reaches every queue that
  started by earlier ones: it reads the started queues with `_queues_lock` held, which a first start also holds, and
  waits for a restart that is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from warren.base.environment import monotonic_ms
from warren.base.errors import Refused, WarrenError
from warren.base.ids import Epoch, ExchangeId, QueueId
from warren.broker.auth.permissions import Access
from warren.broker.counters import MessageCounters
from warren.broker.dead_letters import DeadLetterRoutes
from warren.broker.errors import QueueDeleted, QueuesClosed, UnknownQueue, VhostDeleted
from warren.broker.exchanges.routing import Routing, load
from warren.broker.memory_monitor import MemoryMonitor
from warren.broker.policies import MAX_QUEUES, VhostPolicies
from warren.broker.queue import BrokerQueue, QueueContext
from warren.broker.queue_api import QueueApi
from warren.broker.queue_arguments import QueueArguments
from warren.broker.queue_handle import QueueHandle, QueueStarter, QueueSupervisor
from warren.broker.storage import QueueStorage
from warren.broker.timers import Timers
from warren.broker.unit_of_work import RejectedPublish, TargetLocksNeeded, UnitOfWork
from warren.catalog import bindings, exchanges, parameters, queues
from warren.catalog.catalog import Catalog, CatalogChange, ChangeOrder, DeletedObjects, FunctionChange
from warren.catalog.rows import RowWriter
from warren.catalog.vhosts import VhostRow
from warren.files.environment import Environment
from warren.queues.settings import QueueSettings

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_QUEUE_LOG = logging.getLogger("warren.queue")
_PROBLEMS_MAX = 100
TOGETHER = 100  # queues that are started or stopped in one session


@dataclass(slots=True, eq=False)
class Owner:
    """A connection. Its exclusive queues are deleted with it. Independent of sockets and protocol."""

    name: str  # for messages: 127.0.0.1:40312 -> 127.0.0.1:5672
    exclusive: set[QueueId] = field(default_factory=set)
    has_gone: bool = False  # queues that it has declared meanwhile are deleted, too


@dataclass(slots=True, eq=False)
class Client:
    """A channel, with the permissions of its user in its vhost."""

    access: Access
    owner: Owner
    last_queue: str = ""  # declared last: the queue of a method that names none

    def set_access(self, access: Access) -> None:
        """The permissions have changed."""
        self.access = access

    def set_last_queue(self, name: str) -> None:
        self.last_queue = name


class Vhost:
    def __init__(
        self,
        row: VhostRow,
        storage: QueueStorage,
        environment: Environment,
        settings: QueueSettings,
        monitor: MemoryMonitor | None = None,
        routing: Routing | None = None,
    ) -> None:
        """`monitor`: shared by several vhosts. `routing`: None reads it from the catalog."""
        self.row = row
        self.settings = settings
        self.storage = storage
        self.policies, loaded = _load(storage.catalog, row)
        self.routing = loaded if routing is None else routing
        self.lock = environment.threads.condition()  # of routing and owners
        self.owners: dict[QueueId, Owner] = {}  # of exclusive queues
        self.counts = MessageCounters()  # replaced by the server's
        self.change_order = ChangeOrder(self.lock)  # of changes of the catalog that the routing follows
        self.problems: list[str] = list(self.policies.problems)
        self._policy_lock = environment.threads.condition()  # of `apply_policies`
        self._environment = environment
        self._by_name: dict[str, QueueHandle] = {}
        self._by_id: dict[QueueId, QueueHandle] = {}
        self._queues_lock = environment.threads.condition()  # of these two
        self._closed: QueuesClosed | None = None  # why no queue starts any more
        self._is_commit_scheduled = False
        self._on_ready: Callable[[QueueHandle], None] | None = None
        self.timers = Timers(environment.threads, environment.clock, environment.background)
        self.monitor = monitor or MemoryMonitor(environment.threads, settings.memory_watermark_bytes, self.handles)
        self.dead_letter_routes = DeadLetterRoutes(self.routing, self.lock)
        self.context = QueueContext(
            environment.clock,
            self._set_timer,
            self.monitor.set_used,
            self.report_problem,
            self._queue_ready,
            self.dead_letter_routes,
            self.queue_arguments,
        )
        self.starter = QueueStarter(
            storage.catalog.queue,
            storage.recover,
            storage.log.wait,
            storage.kinds,
            self.context,
            requeues=storage.requeues,
        )
        self.supervisor = QueueSupervisor(
            self.starter,
            settings,
            environment.threads,
            environment.clock,
            self.report_problem,
            self.unit_of_work,
            environment.background,
        )
        self.queue_api = QueueApi(self, environment.threads)

    def __repr__(self) -> str:
        return f"<vhost {self.row.name!r}>"

    def begin(self) -> None:
        """Start the queues that expire, or whose messages do, and the timers."""
        with self.storage.catalog.reading() as connection:
            rows = queues.every(connection, self.row.id)
        timed: list[queues.QueueRow] = []
        for row in rows:
            try:
                arguments = self.policies.queue_arguments(row)
            except WarrenError as error:  # a request for the queue gets the error again
                self.report_problem(f"queue {row.name!r} could not be started: {error.what}")
                continue
            if _is_timed(arguments):
                timed.append(row)
        for start in range(0, len(timed), TOGETHER):
            self.start_queues(timed[start : start + TOGETHER])
        self.timers.call_at(self._now_ms() + self._tick_ms, self._tick_memory)
        self.timers.begin()

    def close(self) -> None:
        """Stop the queues, which write their counters; waiting getters get an error."""
        with self._queues_lock:
            self._closed = QueuesClosed()
        self.timers.stop()
        handles = self.handles()
        for start in range(0, len(handles), TOGETHER):
            self._stop_queues(handles[start : start + TOGETHER])

    def describe(self, row: VhostRow) -> None:
        """Its description or tags have changed."""
        self.row = row

    @property
    def is_deleted(self) -> bool:
        return isinstance(self._closed, VhostDeleted)

    def refuse_queues(self) -> None:
        """The vhost was deleted from the catalog: start no queue any more, and wake the threads that wait for one."""
        with self._queues_lock:
            self._closed = VhostDeleted(self.row.name)
            self._queues_lock.notify_all()

    def delete(self, queues: Collection[QueueId]) -> None:
        """End what the deleted vhost has in memory, and remove the messages of its queues; durable on return. A queue
        that was not started, or fails meanwhile, loses its messages all the same."""
        assert self.is_deleted, "refuse_queues comes first"
        self.timers.stop()
        handles, dropped = self.handles(), set[QueueId]()
        for start in range(0, len(handles), TOGETHER):
            dropped |= self._drop_queues(handles[start : start + TOGETHER])
        if unread := {*queues} - dropped:
            self.storage.forget(unread)
            self.storage.upkeep.request_pass()  # the size of their messages is unknown
        for id_ in queues:
            self.monitor.forget(id_)
            self.storage.queue_deleted(id_)

    def set_on_ready(self, on_ready: Callable[[QueueHandle], None]) -> None:
        """`on_ready` schedules a delivery from a queue, for a consumer with room. Called by any thread."""
        self._on_ready = on_ready

    def report_problem(self, problem: str) -> None:
        """For the operator. The oldest problems are dropped."""
        self.problems.append(problem)
        del self.problems[:-_PROBLEMS_MAX]

    # -- queues --------------------------------------------------------------------------------------------------

    def declare_queue(self, name: str, durable: bool, arguments: QueueArguments) -> QueueHandle:
        """The queue of this name, created if there is none; refused if there is another one. Durable on return. For
        programs: AMQP clients declare more about their queues (declarations/queues)."""
        self.storage.kinds.check(arguments)

        def write(writer: RowWriter) -> queues.QueueRow:
            if queues.get(writer.connection, self.row.id, name) is None:
                self.check_queue_limit(writer, name)
            return queues.declare(writer, self.row.id, name, durable=durable, arguments=arguments.to_table())

        while True:
            self._check_open()
            change = _EmbeddedDeclaration(self, write)
            self.apply(change)
            row = change.result
            with suppress(UnknownQueue):  # deleted at the same time: repeat
                handle = self.start_queue(row)
                with handle.lock:
                    if handle.queue is not None:
                        handle.queue.use.note()
                return handle

    def find_queue(self, name: str) -> QueueHandle:
        """The queue of this name, started if it was not."""
        handle = self.started_queue(name)
        if handle is not None:
            return handle
        self._check_open()
        with self.storage.catalog.reading() as connection:
            row = queues.get(connection, self.row.id, name)
        if row is None:
            raise UnknownQueue(name)
        return self.start_queue(row)

    def started_queue(self, name: str) -> QueueHandle | None:
        """The queue of this name, if it was started and is not being deleted. Does not wait."""
        handle = self._by_name.get(name)
        return None if handle is None or handle.is_deleted or handle.is_deleting else handle

    def started_queues(self) -> dict[QueueId, QueueHandle]:
        return dict(self._by_id)

    def queue_by_id(self, id_: QueueId) -> QueueHandle | None:
        """The queue of this id, if it was started and is not deleted. Does not wait."""
        handle = self._by_id.get(id_)
        return None if handle is None or handle.is_deleted else handle

    def handles(self) -> list[QueueHandle]:
        return list(self._by_id.values())

    def queue_names(self) -> list[str]:
        self._check_open()
        with self.storage.catalog.reading() as connection:
            return [row.name for row in queues.every(connection, self.row.id)]

    def start_queue(self, row: queues.QueueRow, is_patient: bool = True, is_new: bool = False) -> QueueHandle:
        """The queue of a row of the catalog; refused if it was deleted since. A patient caller waits for the end of a
        deletion that is under way. `is_new`: it was declared just now, and a deletion of it has not followed yet
        (`catalog.ChangeOrder`): the row is taken as it is, and nothing is read."""
        with self._queues_lock:
            self._check_open()
            while (handle := self._by_id.get(row.id)) is not None and (handle.is_deleted or handle.is_deleting):
                if not is_patient:
                    raise UnknownQueue(row.name)
                self._queues_lock.wait()  # until its name has gone, too
            if handle is None:
                try:
                    handle = self.supervisor.start(row.id, row.name, row if is_new else None, is_new)
                except DeletedObjects as error:
                    raise UnknownQueue(row.name) from error
                self._by_id[row.id] = self._by_name[row.name] = handle
                if not handle.is_ended:
                    _touch_all(self, [handle])
            return handle

    def start_queues(self, rows: Sequence[queues.QueueRow]) -> None:
        """Start those of up to `TOGETHER` queues that were not started yet and still exist: with one read of the
        catalog, one session and one sync. One that fails is reported, and starts when it is used."""
        with self._queues_lock:
            self._check_open()
            missing = [row.id for row in rows if row.id not in self._by_id]
            with self.storage.catalog.reading() as connection:
                existing = queues.some(connection, missing)
            batch, started = self.storage.index.begin(), list[QueueHandle]()
            try:
                for row in existing:
                    try:
                        started.append(self.supervisor.start(row.id, row.name, row, starting=batch))
                    except Exception as error:
                        what = error.what if isinstance(error, WarrenError) else repr(error)
                        self.report_problem(f"queue {row.name!r} could not be started: {what}")
            except BaseException:
                batch.abort()
                raise
            self.storage.log.wait(batch.end())
            for handle in started:
                self._by_id[handle.id] = self._by_name[handle.name] = handle
            _touch_all(self, [handle for handle in started if not handle.is_ended])

    def delete_queue(self, handle: QueueHandle, check: Callable[[BrokerQueue], None] | None = None) -> int:
        """Returns the number of messages deleted with it. `check` is called before, under the queue's lock, and may
        refuse. If the catalog cannot be changed the queue stays, with its messages."""
        with self._queues_lock:
            while handle.is_deleting:
                self._queues_lock.wait()
            with self.unit_of_work([handle]):
                queue = handle.serving()
                if check is not None:
                    check(queue)
                handle.is_deleting = True
        counts: list[int] = []
        try:
            self._remove(handle, lambda: counts.append(self._drop_messages(handle)))
        finally:
            self._deletion_ended(handle)
        facts = {"queue": handle.name, "vhost": self.row.name, "messages": sum(counts)}
        _QUEUE_LOG.debug("queue deleted", extra={"facts": facts})
        return sum(counts)

    def apply(self, change: CatalogChange) -> None:
        """Make a change of the catalog that the routing follows, or a lookup whose result the routing must have."""
        self.storage.catalog.apply(change, self.change_order)

    # -- policies and limits -------------------------------------------------------------------------------------

    def queue_arguments(self, row: queues.QueueRow) -> QueueArguments:
        """The arguments in effect: its own, merged with those of the present policies."""
        return self.policies.queue_arguments(row)

    def set_policies(self, policies: VhostPolicies) -> None:
        """A change of the catalog has new ones. Called with `lock` held; follow it by `apply_policies`."""
        self.policies = policies
        self.routing.set_policy_alternate(policies.alternate_exchange)
        for problem in policies.problems:
            self.report_problem(problem)

    def apply_policies(self) -> None:
        """Bring exchanges and queues in line with the present policies; queues that must be watched for expiry start.
        Takes long where there are many: for a thread that may wait. Each queue is locked only while it is changed.
        Threads take turns, and each uses the newest policies: the last one leaves everything in line with them."""
        with self._policy_lock:
            policies = self.policies
            with self.lock:
                names = self.routing.exchange_names()
            for id_, name in names.items():
                alternate = policies.alternate_exchange(name)  # matched without the lock
                with self.lock:
                    self.routing.set_alternate(id_, alternate)
            with self.storage.catalog.reading() as connection:
                rows = queues.every(connection, self.row.id)
            with self._queues_lock:
                self._check_open()
            timed: list[queues.QueueRow] = []
            for row in rows:
                try:
                    arguments, handle = policies.queue_arguments(row), self._by_id.get(row.id)
                    if handle is not None:
                        self._set_arguments(handle, arguments)
                    elif _is_timed(arguments):
                        timed.append(row)
                except QueuesClosed:
                    raise
                except WarrenError as error:  # the other queues get theirs all the same
                    self.report_problem(f"policies could not be applied to queue {row.name!r}: {error.what}")
            for start in range(0, len(timed), TOGETHER):
                self.start_queues(timed[start : start + TOGETHER])

    def _set_arguments(self, handle: QueueHandle, arguments: QueueArguments) -> None:
        queue = handle.queue
        if handle.is_ended or (queue is not None and queue.arguments == arguments):
            return

        def action(work: UnitOfWork) -> None:
            if handle.queue is not None:
                handle.queue.set_arguments(arguments, work)

        _, epoch = self.execute([handle], action)
        if epoch:
            self.commit_soon()

    def check_queue_limit(self, writer: RowWriter, name: str) -> None:
        """Refused if the vhost may have no further queue."""
        limit = self.policies.limit(MAX_QUEUES)
        if limit is not None and queues.count(writer.connection, self.row.id) >= limit:
            raise Refused(f"cannot declare queue '{name}': queue limit in vhost '{self.row.name}' ({limit}) is reached")

    def own(self, owner: Owner, id_: QueueId) -> None:
        self.owners[id_] = owner
        owner.exclusive.add(id_)

    def disown(self, id_: QueueId) -> None:
        owner = self.owners.pop(id_, None)
        if owner is not None:
            owner.exclusive.discard(id_)

    # -- units of work -------------------------------------------------------------------------------------------

    def execute(self, handles: Sequence[QueueHandle], action: Callable[[UnitOfWork], Result]) -> tuple[Result, Epoch]:
        """Run `action` under the locks of these queues; its result, and the epoch to wait for. Queues that exceed their
        limits afterwards are brought back within them, in as many units of work as that takes."""
        result, work = self.execute_once(handles, action)
        epoch = work.epoch
        while work.left_over or work.rejected:
            work = self._continue_dead_lettering(work.left_over, work.rejected)
            epoch = max(epoch, work.epoch)
        return result, epoch

    def execute_once(
        self,
        handles: Sequence[QueueHandle],
        action: Callable[[UnitOfWork], Result],
        with_targets: bool = False,
        is_patient: bool = True,
    ) -> tuple[Result, UnitOfWork]:
        """One unit of work. `with_targets`: with the locks of all queues that messages may move to; otherwise these are
        taken only if `action` raises `TargetLocksNeeded`. The caller continues with `left_over` and `rejected`. Not
        `is_patient` (the event loop): failed queues are restarted by another thread, and do not serve until then."""
        if not with_targets:
            with suppress(TargetLocksNeeded):
                with self.unit_of_work(handles, is_patient=is_patient) as work:
                    result = action(work)
                return result, work
        handles, targets = self._with_targets(handles)
        with self.unit_of_work(handles, targets, is_patient) as work:
            result = action(work)
        return result, work

    def unit_of_work(
        self, handles: Sequence[QueueHandle], targets: Collection[QueueId] | None = None, is_patient: bool = True
    ) -> UnitOfWork:
        return UnitOfWork(self.storage.index.begin, handles, self.supervisor.failed, targets, is_patient)

    def _continue_dead_lettering(self, over: Sequence[QueueId], rejected: Collection[RejectedPublish]) -> UnitOfWork:
        """Dead-lettering that was too much for one session."""
        ids = dict.fromkeys([*over, *(each.queue for each in rejected)])
        handles = [handle for handle in map(self.queue_by_id, ids) if handle is not None]

        def action(work: UnitOfWork) -> None:
            for handle in handles:
                if handle.queue is not None and handle.queue.is_over():
                    handle.queue.shrink(work)
            work.rejected.extend(rejected)

        _, work = self.execute_once(handles, action, with_targets=bool(rejected))
        return work

    def _with_targets(self, handles: Sequence[QueueHandle]) -> tuple[list[QueueHandle], set[QueueId]]:
        """These queues and all that messages may move to from them; and the ids of the latter, including those that
        cannot be started: nothing moves to them."""
        found, unvisited = dict.fromkeys(handles), list(handles)
        targets: set[QueueId] = set()
        while unvisited:
            queue = unvisited.pop().queue
            address = None if queue is None else queue.arguments.dead_letters_to
            for id_ in () if address is None else self.dead_letter_routes.reach(*address):
                if id_ not in targets:
                    targets.add(id_)
                    target = self._start_target(id_)
                    if target is not None and target not in found:
                        found[target] = None
                        unvisited.append(target)
        return list(found), targets

    def _start_target(self, id_: QueueId) -> QueueHandle | None:
        handle = self.queue_by_id(id_)
        try:
            return handle or self.start_queue(self.storage.catalog.queue(id_), is_patient=False)
        except (UnknownQueue, DeletedObjects):
            return None
        except WarrenError as error:
            self.report_problem(f"dead-letter target, queue {id_}, could not be started: {error.what}")
            return None

    # -- timers --------------------------------------------------------------------------------------------------

    def commit_soon(self) -> None:
        """Make what was written durable after `settle_ms`, for acknowledgements: no client waits for them."""
        if not self._is_commit_scheduled:
            self._is_commit_scheduled = True
            self.timers.call_at(self._now_ms() + self.settings.settle_ms, self._request_commit)

    def _request_commit(self) -> None:
        self._is_commit_scheduled = False
        self.storage.log.commit.request_commit()

    def _tick_memory(self) -> None:
        self.monitor.tick()
        self.timers.call_at(self._now_ms() + self._tick_ms, self._tick_memory)

    def _set_timer(self, queue: QueueId, due_ms: int) -> None:
        self.timers.call_at(due_ms, self.check_queue, queue)

    def check_queue(self, id_: QueueId) -> None:
        """Expire messages at the head of a queue, and the queue itself; bring it within its limit. The timers repeat it
        if it fails."""
        handle = self._by_id.get(id_)
        if handle is None:
            return

        def action(work: UnitOfWork) -> tuple[bool, bool]:
            queue = handle.serving()
            work.touch(queue)
            queue.timer_fired()
            queue.check_limit(work)
            return queue.expire(work), queue.is_unused()

        has_more = True
        while has_more and not handle.is_ended:
            (has_more, is_unused), epoch = self.execute([handle], action)
            if epoch:
                self.commit_soon()
            if is_unused and not has_more:
                with suppress(Refused):  # used at the same time
                    self.delete_queue(handle, _check_unused)

    def _queue_ready(self, id_: QueueId) -> None:
        handle = self._by_id.get(id_)
        if self._on_ready is not None and handle is not None:
            self._on_ready(handle)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _remove(self, handle: QueueHandle, drop: Callable[[], None]) -> None:
        """Remove a name from the catalog. `drop` is called when the log has the removal: it deletes the messages, and
        ends the queue."""
        self.apply(_QueueRemoval(self, handle.id, drop))

    def _drop_messages(self, handle: QueueHandle) -> int:
        """The log has the removal of the name: delete the messages, durable on return, and end the queue. Returns the
        number of messages."""

        def action(work: UnitOfWork) -> int:
            queue = handle.serving()
            count = queue.delete(work)
            queue.getters.fail(QueueDeleted(handle.name))
            return count

        with self._queues_lock:
            try:
                count, epoch = self.execute([handle], action)
            finally:
                with handle.lock:
                    handle.end(QueueDeleted(handle.name))
        self.storage.log.wait(epoch)
        return count

    def _deletion_ended(self, handle: QueueHandle) -> None:
        with self._queues_lock:
            handle.is_deleting = False
            if handle.is_deleted:
                self._by_id.pop(handle.id, None)
                if self._by_name.get(handle.name) is handle:
                    del self._by_name[handle.name]
            self._queues_lock.notify_all()
        if handle.is_deleted:
            self.monitor.forget(handle.id)
            self.storage.queue_deleted(handle.id)

    def _stop_queues(self, handles: Sequence[QueueHandle]) -> None:
        """Their counters are written in one session. If one of them fails, each writes in a session of its own."""
        try:
            self.execute(handles, lambda work: _stop(handles, work))
        except WarrenError:
            for handle in handles:
                with suppress(WarrenError):  # the next start recovers it as after a crash
                    self.execute([handle], lambda work: _stop([handle], work))  # noqa: B023 - called at once
        for handle in handles:
            with handle.lock:
                handle.end(QueuesClosed())

    def _drop_queues(self, handles: Sequence[QueueHandle]) -> set[QueueId]:
        """Delete the messages of these queues in one session, durable on return, and end the queues. Returns those
        whose messages were deleted."""

        def action(work: UnitOfWork) -> set[QueueId]:
            return {_drop(handle, work) for handle in handles if handle.queue is not None}

        dropped = set[QueueId]()
        try:
            dropped, epoch = self.execute(handles, action)
            self.storage.log.wait(epoch)
        except WarrenError as error:
            facts = {"vhost": self.row.name, "why": error.what}
            _LOG.warning("queues of a deleted vhost failed: their messages are removed", extra={"facts": facts})
        for handle in handles:
            with handle.lock:
                handle.end(QueueDeleted(handle.name))
        return dropped

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def _now_ms(self) -> int:
        return monotonic_ms(self._environment.clock)

    @property
    def _tick_ms(self) -> int:
        return int(self.settings.memory_tick_seconds * 1000)


def _load(catalog: Catalog, row: VhostRow) -> tuple[VhostPolicies, Routing]:
    with catalog.reading() as connection:
        policies = VhostPolicies.of(parameters.every(connection, row.id))
        routing = load(
            exchanges.every(connection, row.id),
            queues.every(connection, row.id),
            bindings.every(connection, row.id),
            policies.alternate_exchange,
        )
    return policies, routing


def _is_timed(arguments: QueueArguments) -> bool:
    return arguments.message_ttl_ms is not None or arguments.expires_ms is not None


def _check_unused(queue: BrokerQueue) -> None:
    if not queue.is_unused():
        raise Refused(f"queue {queue.name!r} is in use")


def _touch_all(vhost: Vhost, handles: Sequence[QueueHandle]) -> None:
    """Queues that were just started report their memory and set their timers."""

    def action(work: UnitOfWork) -> None:
        for handle in handles:
            queue = handle.serving()
            work.touch(queue)
            queue.check_limit_soon()

    vhost.execute(handles, action)


def _drop(handle: QueueHandle, work: UnitOfWork) -> QueueId:
    """No message is accepted between the removal of a queue's messages and its end."""
    handle.serving().delete(work)
    handle.end(QueueDeleted(handle.name))
    return handle.id


def _stop(handles: Sequence[QueueHandle], work: UnitOfWork) -> None:
    """No request is served between the counters of a queue and its end. A queue that is down writes nothing."""
    for handle in handles:
        if handle.queue is not None:
            handle.queue.stop(work)
    for handle in handles:
        handle.end(QueuesClosed())


class _EmbeddedDeclaration(FunctionChange[queues.QueueRow]):
    def __init__(self, vhost: Vhost, declare: Callable[[RowWriter], queues.QueueRow]) -> None:
        super().__init__(declare)
        self._vhost = vhost

    def update_routing(self) -> None:
        self._vhost.routing.add_queue(self.result)


class _QueueRemoval(CatalogChange):
    """A queue's name, its bindings, and the exchanges that are deleted with these."""

    def __init__(self, vhost: Vhost, id_: QueueId, drop: Callable[[], None]) -> None:
        """`drop`: deletes the queue's messages and ends it, once the log has the removal of the name."""
        self._vhost = vhost
        self._id = id_
        self._drop = drop
        self._exchanges: list[ExchangeId] = []

    def write(self, writer: RowWriter) -> None:
        sources = bindings.sources_of(writer.connection, queue=self._id)
        queues.delete(writer, self._id)
        self._exchanges = bindings.remove_unused(writer, sources)

    def on_logged(self) -> None:
        self._drop()

    def update_routing(self) -> None:
        self._vhost.counts.queues_deleted += 1
        self._vhost.disown(self._id)
        self._vhost.routing.remove_queue(self._id)
        for id_ in self._exchanges:
            self._vhost.routing.remove_exchange(id_)
