"""The queues of one vhost, for whoever uses them: the API to what `queue` implements (checklist QP-02).

    declare · find ──▶ a supervised queue                    names and arguments are the catalog's
    do ──▶ something to queues, under their locks            with it `queue_api` puts, gets and settles messages
    look ──▶ what time brings                                expired messages, unused queues, memory, acknowledgements

Queues start when they are first asked for; those that have to do with time start when
the vhost does, so that messages expire whether anybody asks or not.

Deleting: the name goes first, by a change of the catalog that may be refused; as soon as the log has it, what is in the
queue goes. Both are durable when `delete` returns. Meanwhile the queue takes what is routed to it, and a request for it
by name waits. Messages that a crash leaves without a queue are passed over by the next start (HS-06, RC-02).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from warren.base.errors import Refused, WarrenError
from warren.base.ids import Epoch, QueueId, VhostId
from warren.base.messages import QueuePlace
from warren.broker.dead_letters import DeadLetterRoutes, NamedDeadLetterRoutes
from warren.broker.errors import QueueDeleted, QueuesClosed, UnknownQueue
from warren.broker.memory_monitor import MemoryMonitor
from warren.broker.queue import Queue, QueueContext
from warren.broker.queue_arguments import QueueArguments, monotonic_ms
from warren.broker.queue_handle import PagedQueueAdapter, QueueHandle, QueueStarter, QueueSupervisor
from warren.broker.storage import BackingKinds
from warren.broker.timers import Timers
from warren.broker.unit_of_work import OpenUnitOfWork, RejectedPublish, UnitOfWork, WiderLocksNeeded
from warren.catalog import queues
from warren.catalog.catalog import Catalog, DeletedObjects
from warren.catalog.rows import RowWriter
from warren.files.environment import Environment
from warren.queue_index.batch import IndexBatch
from warren.queue_index.row_format import Counters
from warren.queues.settings import QueueSettings

Result = TypeVar("Result")
_SETTLE = 0  # no queue has this id: in the timetable it means the acknowledgements
_MONITOR = -1
_PROBLEMS_MAX = 100
TOGETHER = 100  # so many queues are started or stopped in one session


class Storage(Protocol):
    """What lies below queues (`storage.QueueStorage`)."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def kinds(self) -> BackingKinds: ...

    def recover(self, place: QueuePlace, newest: Epoch) -> Counters: ...

    def begin(self) -> IndexBatch: ...

    def throttle(self) -> None:
        """Before a put, without a lock: wait if the disk fills with what nobody wants."""
        ...

    def wait(self, epoch: Epoch) -> None: ...

    def ring(self) -> None:
        """Let what was written become durable, without waiting."""
        ...

    def queue_has_gone(self, queue: QueueId) -> None:
        """A queue was deleted, with all that was in it."""
        ...


class VhostQueues:
    def __init__(
        self,
        id_: VhostId,
        storage: Storage,
        environment: Environment,
        settings: QueueSettings,
        monitor: MemoryMonitor | None = None,
        dead_letter_routes: DeadLetterRoutes | None = None,
    ) -> None:
        """`monitor`: of all vhosts together, if there are several. `dead_letter_routes`: of dead letters, if there are exchanges."""
        self.id = id_
        self.settings = settings
        self.storage = storage
        self._environment = environment
        self._by_name: dict[str, QueueHandle] = {}
        self._by_id: dict[QueueId, QueueHandle] = {}
        self._lock = environment.threads.condition()  # of these two
        self._is_closed = False
        self._is_settling = False
        # The name of a queue comes and goes by these two; who keeps more about it does that instead.
        self.add: Callable[[Callable[[RowWriter], queues.QueueRow]], queues.QueueRow] = storage.catalog.change
        self.remove: Callable[[QueueHandle, Callable[[], None]], None] = self._removed
        self.problems: list[str] = []
        self.timers = Timers(environment.threads, environment.clock, self.look, environment.background)
        self.monitor = monitor or MemoryMonitor(environment.threads, settings.memory_watermark_bytes, self.paged)
        self._dead_letter_routes = dead_letter_routes or NamedDeadLetterRoutes(
            self._id_of, self._id_of_started, self._ids
        )
        around = QueueContext(
            environment.clock, self.timers.at, self.monitor.takes, self.tell, self._dead_letter_routes
        )
        self.prequeue = QueueStarter(storage.catalog.queue, storage.recover, storage.wait, storage.kinds, around)
        self.supervisor = QueueSupervisor(
            self.prequeue, settings, environment.threads, environment.clock, self.tell, environment.background
        )

    def begin(self) -> None:
        """Start the queues that have to do with time, and the clockwork."""
        with self.storage.catalog.reading() as connection:
            rows = queues.every(connection, self.id)
        timed: list[queues.QueueRow] = []
        for row in rows:
            try:
                arguments = QueueArguments.from_table(row.arguments)
            except WarrenError as error:  # whoever asks for it is told again
                self.tell(f"queue {row.name!r} could not be started: {error.what}")
                continue
            if arguments.message_ttl_ms is not None or arguments.expires_ms is not None:
                timed.append(row)
        for start in range(0, len(timed), TOGETHER):
            self.start_together(timed[start : start + TOGETHER])
        self.timers.at(_MONITOR, self._now_ms() + self._tick_ms)
        self.timers.begin()

    def close(self) -> None:
        """Queues write down where they stand; whoever waits is told."""
        with self._lock:
            self._is_closed = True
        self.timers.stop()
        handles = list(self._by_id.values())
        for start in range(0, len(handles), TOGETHER):
            self._stop_together(handles[start : start + TOGETHER])

    # -- which queues there are ----------------------------------------------------------------------------------

    def declare(self, name: str, durable: bool, arguments: QueueArguments) -> QueueHandle:
        """The queue of this name, made if there is none; refused if there is another one. Durable when it returns."""
        self.storage.kinds.check(arguments)

        def work(change: RowWriter) -> queues.QueueRow:
            return queues.declare(change, self.id, name, durable=durable, arguments=arguments.to_table())

        while True:
            self._check_open()
            row = self.add(work)
            with suppress(UnknownQueue):  # it went in this moment: once more
                handle = self._started(row)
                with handle.lock:
                    if handle.queue is not None:
                        handle.queue.use.note()
                return handle

    def find(self, name: str) -> QueueHandle:
        handle = self.known(name)
        if handle is not None:
            return handle
        self._check_open()
        with self.storage.catalog.reading() as connection:
            row = queues.get(connection, self.id, name)
        if row is None:
            raise UnknownQueue(name)
        return self._started(row)

    def known(self, name: str) -> QueueHandle | None:
        """The queue of this name, if it was started and is not being deleted: asks nobody, and waits for nobody."""
        handle = self._by_name.get(name)
        return None if handle is None or handle.is_deleted or handle.is_going else handle

    def served(self, id_: QueueId) -> QueueHandle | None:
        """The queue of this id, if it was started and is not deleted."""
        handle = self._by_id.get(id_)
        return None if handle is None or handle.is_deleted else handle

    def every(self) -> list[QueueHandle]:
        """Those that were started."""
        return list(self._by_id.values())

    def names(self) -> list[str]:
        self._check_open()
        with self.storage.catalog.reading() as connection:
            return [row.name for row in queues.every(connection, self.id)]

    def started(self) -> dict[QueueId, QueueHandle]:
        """Those that somebody has asked for, at this moment."""
        return dict(self._by_id)

    def start(self, row: queues.QueueRow, is_patient: bool = True, is_new: bool = False) -> QueueHandle:
        """The queue of a row that is in the catalog; refused if it was deleted since. Who is patient waits for the end
        of a deletion that is under way. `is_new`: it was declared just now, and a deletion of it has not followed yet
        (`catalog.ChangeOrder`): the row is taken as it is, and nothing is read."""
        return self._started(row, is_patient, is_new)

    def start_together(self, rows: Sequence[queues.QueueRow]) -> None:
        """Start those of the queues that were not started yet and are still there, up to `TOGETHER`: with one read of
        the catalog, one session and one sync. One that fails to start is told of, and starts when it is asked for."""
        with self._lock:
            self._check_open()
            missing = [row.id for row in rows if row.id not in self._by_id]
            with self.storage.catalog.reading() as connection:
                there = queues.some(connection, missing)
            starting, started = self.storage.begin(), list[QueueHandle]()
            try:
                for row in there:
                    try:
                        started.append(self.supervisor.start(row.id, row.name, row, starting=starting))
                    except Exception as error:
                        what = error.what if isinstance(error, WarrenError) else repr(error)
                        self.tell(f"queue {row.name!r} could not be started: {what}")
            except BaseException:
                starting.abort()
                raise
            self.storage.wait(starting.end())
            for handle in started:
                self._by_id[handle.id] = self._by_name[handle.name] = handle
            serving = [handle for handle in started if not handle.is_ended]  # what they take, and when they are due
            self.do(serving, lambda work: _touched(serving, work))

    def delete(self, handle: QueueHandle, check: Callable[[Queue], None] | None = None) -> int:
        """How many messages went with it. `check` is called before, with its lock held, and may refuse. If the catalog
        cannot be changed the queue stays, with all that is in it."""
        with self._lock:
            while handle.is_going:
                self._lock.wait()
            with self._working([handle]):
                queue = handle.serving()
                if check is not None:
                    check(queue)
                handle.is_going = True
        counts: list[int] = []
        try:
            self.remove(handle, lambda: counts.append(self._dropped(handle)))
        finally:
            self._deletion_ended(handle)
        return sum(counts)

    # -- work ----------------------------------------------------------------------------------------------------

    def do(self, handles: Sequence[QueueHandle], act: Callable[[UnitOfWork], Result]) -> tuple[Result, Epoch]:
        """Do something to queues under their locks; what it came to, and the epoch to wait for. Queues that hold more
        than they should afterwards are brought back within their limits, piece by piece."""
        result, work = self.do_once(handles, act)
        epoch = work.epoch
        while work.left_over or work.rejected:
            work = self._resume(work.left_over, work.rejected)
            epoch = max(epoch, work.epoch)
        return result, epoch

    def _resume(self, over: Sequence[QueueId], rejected: Collection[RejectedPublish]) -> UnitOfWork:
        """Go on with dead-lettering that was too much for one session."""
        ids = dict.fromkeys([*over, *(each.queue for each in rejected)])
        handles = [handle for handle in map(self.served, ids) if handle is not None]

        def act(work: UnitOfWork) -> None:
            for handle in handles:
                if handle.queue is not None and handle.queue.is_over():
                    handle.queue.shrink(work)
            work.rejected.extend(rejected)

        _, work = self.do_once(handles, act, is_wide=bool(rejected))
        return work

    def do_once(
        self,
        handles: Sequence[QueueHandle],
        act: Callable[[UnitOfWork], Result],
        is_wide: bool = False,
        is_patient: bool = True,
    ) -> tuple[Result, UnitOfWork]:
        """One unit of work; `is_wide`: with the locks of all queues that messages may move on to, else only if `act`
        raises `WiderLocksNeeded`. What `left_over` and `rejected` of it hold afterwards is for the caller to go on with. Not
        `is_patient` (the event loop): queues are restarted by another thread, and serve nobody until then."""
        if not is_wide:
            with suppress(WiderLocksNeeded):
                with self._working(handles, is_patient) as work:
                    result = act(work)
                return result, work
        held, reached = self._reach(handles)
        failed = self._failed if is_patient else self._failed_in_loop
        with OpenUnitOfWork(self.storage.begin, held, failed, True, reached, is_patient) as work:
            result = act(work)
        return result, work

    def settle_soon(self) -> None:
        """What was written is to be durable in a moment; nobody waits for it."""
        if not self._is_settling:
            self._is_settling = True
            self.timers.at(_SETTLE, self._now_ms() + self.settings.settle_ms)

    def _working(self, handles: Sequence[QueueHandle], is_patient: bool = True) -> OpenUnitOfWork:
        failed = self._failed if is_patient else self._failed_in_loop
        return OpenUnitOfWork(self.storage.begin, handles, failed, is_patient=is_patient)

    def _failed(self, work: UnitOfWork, error: BaseException, is_patient: bool = True) -> BaseException:
        ids = {queue.id for queue in work.touched}
        failed = [handle for handle in work.held if handle.id in ids]
        return self.supervisor.failed(failed, work, error, is_patient)

    def _failed_in_loop(self, work: UnitOfWork, error: BaseException) -> BaseException:
        return self._failed(work, error, is_patient=False)

    def _reach(self, handles: Sequence[QueueHandle]) -> tuple[list[QueueHandle], set[QueueId]]:
        """These, and all queues that messages may move on to from them; and the ids of those, also of such that cannot
        be started: to them nothing moves."""
        found, left = dict.fromkeys(handles), list(handles)
        reached: set[QueueId] = set()
        while left:
            queue = left.pop().queue
            address = None if queue is None else queue.arguments.dead_letters_to
            for id_ in () if address is None else self._dead_letter_routes.reach(*address):
                if id_ not in reached:
                    reached.add(id_)
                    target = self._reached(id_)
                    if target is not None and target not in found:
                        found[target] = None
                        left.append(target)
        return list(found), reached

    def _reached(self, id_: QueueId) -> QueueHandle | None:
        handle = self.served(id_)
        try:
            return handle or self._started(self.storage.catalog.queue(id_), is_patient=False)
        except (UnknownQueue, DeletedObjects):
            return None
        except WarrenError as error:
            self.tell(f"queue {id_}, to which messages were to be moved, could not be started: {error.what}")
            return None

    def _id_of(self, name: str) -> QueueId | None:
        """Of a queue, which is started if it was not."""
        try:
            return self.find(name).id
        except UnknownQueue:
            return None

    def _id_of_started(self, name: str) -> QueueId | None:
        handle = self.known(name)
        return None if handle is None else handle.id

    def _ids(self) -> list[QueueId]:
        with self.storage.catalog.reading() as connection:
            return [row.id for row in queues.every(connection, self.id)]

    # -- the clockwork -------------------------------------------------------------------------------------------

    def look(self, key: int) -> None:
        """Its time has come: the acknowledgements', the memory's, or a queue's. The timetable repeats what fails."""
        if key == _SETTLE:
            self._is_settling = False
            self.storage.ring()
        elif key == _MONITOR:
            self.monitor.tick()
            self.timers.at(_MONITOR, self._now_ms() + self._tick_ms)
        elif (handle := self._by_id.get(QueueId(key))) is not None:
            self._look_at(handle)

    def tell(self, problem: str) -> None:
        """What an operator should know; the oldest are forgotten."""
        self.problems.append(problem)
        del self.problems[:-_PROBLEMS_MAX]

    def _look_at(self, handle: QueueHandle) -> None:
        def act(work: UnitOfWork) -> tuple[bool, bool]:
            queue = handle.serving()
            work.touch(queue)
            queue.looked_at()
            return queue.expire(work), queue.is_unused()

        has_more = True
        while has_more and not handle.is_ended:
            (has_more, is_unused), epoch = self.do([handle], act)
            if epoch:
                self.settle_soon()
            if is_unused and not has_more:
                with suppress(Refused):  # somebody has used it in this moment
                    self.delete(handle, _check_unused)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _started(self, row: queues.QueueRow, is_patient: bool = True, is_new: bool = False) -> QueueHandle:
        with self._lock:
            self._check_open()
            while (handle := self._by_id.get(row.id)) is not None and (handle.is_deleted or handle.is_going):
                if not is_patient:
                    raise UnknownQueue(row.name)
                self._lock.wait()  # until its name has gone, too
            if handle is None:
                try:
                    handle = self.supervisor.start(row.id, row.name, row if is_new else None, is_new)
                except DeletedObjects as error:
                    raise UnknownQueue(row.name) from error
                self._by_id[row.id] = self._by_name[row.name] = handle
                if not handle.is_ended:
                    self.do([handle], lambda work: work.touch(handle.serving()))  # what it takes, and when it is due
            return handle

    def _removed(self, handle: QueueHandle, drop: Callable[[], None]) -> None:
        _, epoch = self.storage.catalog.submit(lambda change: queues.delete(change, handle.id))
        try:
            drop()
        finally:
            self.storage.catalog.settle(epoch)

    def _dropped(self, handle: QueueHandle) -> int:
        """The log has the removal of its name: what is in it goes, durable when this returns, and it ends. How many
        messages that were."""
        with self._lock:
            try:
                count, epoch = self.do([handle], lambda work: self._emptied(handle, work))
            finally:
                with handle.lock:
                    handle.end(QueueDeleted(handle.name))
        self.storage.wait(epoch)
        return count

    def _deletion_ended(self, handle: QueueHandle) -> None:
        with self._lock:
            handle.is_going = False
            if handle.is_deleted:
                self._by_id.pop(handle.id, None)
                if self._by_name.get(handle.name) is handle:
                    del self._by_name[handle.name]
            self._lock.notify_all()
        if handle.is_deleted:
            self.monitor.forget(handle.id)
            self.storage.queue_has_gone(handle.id)

    def _stop_together(self, handles: Sequence[QueueHandle]) -> None:
        """They write down where they stand in one session, and end. If one of them fails each writes by itself."""
        try:
            self.do(handles, lambda work: self._stopped(handles, work))
        except WarrenError:
            for handle in handles:
                with suppress(WarrenError):  # the next start finds it as after a crash
                    self.do([handle], lambda work: self._stopped([handle], work))  # noqa: B023 - called at once
        for handle in handles:
            with handle.lock:
                handle.end(QueuesClosed())

    def _stopped(self, handles: Sequence[QueueHandle], work: UnitOfWork) -> None:
        """No request comes between what a queue writes down and its end. One that is down writes nothing."""
        for handle in handles:
            if handle.queue is not None:
                handle.queue.stop(work)
        for handle in handles:
            handle.end(QueuesClosed())

    def _emptied(self, handle: QueueHandle, work: UnitOfWork) -> int:
        queue = handle.serving()
        count = queue.delete(work)
        queue.line.tell(QueueDeleted(handle.name))
        return count

    def paged(self) -> list[PagedQueueAdapter]:
        """Its queues, as the monitor sees them."""
        return [
            PagedQueueAdapter(handle, lambda handle: self._working([handle])) for handle in list(self._by_id.values())
        ]

    def _check_open(self) -> None:
        if self._is_closed:
            raise QueuesClosed

    def _now_ms(self) -> int:
        return monotonic_ms(self._environment.clock)

    @property
    def _tick_ms(self) -> int:
        return int(self.settings.memory_tick_seconds * 1000)


def _check_unused(queue: Queue) -> None:
    if not queue.is_unused():
        raise Refused(f"queue {queue.name!r} is in use")


def _touched(handles: Sequence[QueueHandle], work: UnitOfWork) -> None:
    for handle in handles:
        work.touch(handle.serving())
