"""queue.declare, queue.delete, queue.purge; and the queues that go by themselves.

    declare   there ──▶ is it yours, is it the same? ──▶ how much is in it
              not there ──▶ may it be made, can it be? ──▶ catalog, durable ──▶ started ──▶ known to the routing
    delete    emptied ──▶ its name, its bindings, the exchanges that go with them: one change ──▶ forgotten

A queue goes because somebody says so, because its connection has gone (`release`), because its last consumer has
(`consumer_removed`), or because nobody has used it for its time. In the end there is one way to go (`Vhost`).

Always true: an exclusive queue has its owner before anybody can see it. Nobody waits for the disk with a lock held.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk, QueuePurge, QueuePurgeOk
from warren.base.environment import Random
from warren.base.errors import Refused, WarrenError
from warren.base.ids import QueueId
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.broker.declarations import errors as declared_again
from warren.broker.declarations.errors import bad_argument, check_name, failed, locked, not_found, plain, queue_in
from warren.broker.errors import QueueDeleted, UnknownQueue
from warren.broker.queue import Queue
from warren.broker.queue_arguments import EXCHANGE, TYPE, BadArgument, QueueArguments, check_new, type_of
from warren.broker.queue_handle import QueueHandle
from warren.broker.vhost import Client, Owner, Vhost
from warren.catalog import queues
from warren.catalog.rows import Change

_QUORUM = "quorum"


class QueueDeclarations:
    def __init__(self, vhost: Vhost, rng: Random) -> None:
        self._vhost = vhost
        self._rng = rng

    # -- methods -------------------------------------------------------------------------------------------------

    def declare(self, client: Client, method: QueueDeclare) -> QueueDeclareOk:
        name = plain(method.queue)
        counted = self._look(client, name) if method.passive else self._declared(client, method, name)
        client.last_queue = counted.queue
        return counted

    def delete(self, client: Client, method: QueueDelete) -> QueueDeleteOk:
        name = self.named(client, plain(method.queue))
        authorize(client.access, Operation.QUEUE_DELETE, {NameRole.QUEUE: name})
        what, ready = queue_in(self._vhost.row.name, name), 0

        def check(queue: Queue) -> None:
            nonlocal ready
            ready = len(queue.backing)
            if method.if_empty and ready:
                raise failed(f"{what} not empty")
            if method.if_unused and len(queue.consumers):
                raise failed(f"{what} in use")

        with suppress(UnknownQueue, QueueDeleted):  # what is not there has gone
            handle = self._vhost.find_queue(name)
            self.check_owner(client, handle)
            self._vhost.delete_queue(handle, check)
        return QueueDeleteOk(ready)

    def purge(self, client: Client, method: QueuePurge) -> QueuePurgeOk:
        name = self.named(client, method.queue)
        authorize(client.access, Operation.QUEUE_PURGE, {NameRole.QUEUE: name})
        try:
            handle = self._vhost.find_queue(name)
            self.check_owner(client, handle)
            count, epoch = self._vhost.queue_api.purge(handle)
        except (UnknownQueue, QueueDeleted) as error:
            raise not_found(queue_in(self._vhost.row.name, name)) from error
        self._vhost.storage.log.wait(epoch)
        return QueuePurgeOk(count)

    # -- what others ask -----------------------------------------------------------------------------------------

    def named(self, client: Client, name: str) -> str:
        """The queue that is meant: no name means the one that this channel declared last."""
        if name or client.last_queue:
            return name or client.last_queue
        raise PeerError(ReplyCode.NOT_FOUND, "no previously declared queue")

    def check_owner(self, client: Client, handle: QueueHandle) -> None:
        """Refused if it is exclusive, and somebody else's."""
        with self._vhost.lock:
            owner = self._vhost.owners.get(handle.id)
        if owner is not None and owner is not client.owner:
            raise locked(queue_in(self._vhost.row.name, handle.name))

    def release(self, owner: Owner) -> None:
        """A connection has gone, and its exclusive queues go. What it declares from now on goes at once."""
        with self._vhost.lock:
            owner.has_gone = True
            ids = sorted(owner.exclusive)
        for id_ in ids:
            try:
                self._go(id_)
            except Exception as error:  # the others go all the same
                what = error.what if isinstance(error, WarrenError) else repr(error)
                self._vhost.report_problem(f"an exclusive queue of {owner.name} could not be deleted: {what}")

    def consumer_removed(self, id_: QueueId) -> None:
        """It was the last one: the queue goes, if it is that kind of queue, and nobody else has come."""
        with self._vhost.storage.catalog.reading() as connection:
            row = queues.by_id(connection, id_)
        if row is not None and row.auto_delete:
            self._go(id_, _check_no_consumers)

    # -- declaring -----------------------------------------------------------------------------------------------

    def _look(self, client: Client, name: str) -> QueueDeclareOk:
        authorize(client.access, Operation.QUEUE_DECLARE_PASSIVE, {NameRole.QUEUE: name})
        while True:
            row = self._vhost.changes.change(lambda change: queues.get(change.connection, self._vhost.row.id, name))
            if row is None:
                raise not_found(queue_in(self._vhost.row.name, name))
            self._check_exclusive(client, row, row.exclusive)
            with suppress(UnknownQueue, QueueDeleted):  # it went in this moment: look again
                return self._counted(row)

    def _declared(self, client: Client, method: QueueDeclare, name: str) -> QueueDeclareOk:
        arguments = method.arguments
        if name:
            check_name("queue", name)
        elif arguments.get(TYPE) == _QUORUM:
            raise failed("cannot declare a server-named queue of type quorum")
        name = name or self._random_name()
        authorize(client.access, Operation.QUEUE_DECLARE, {NameRole.QUEUE: name})
        durable = method.durable and not method.exclusive
        what = queue_in(self._vhost.row.name, name)
        with self._vhost.lock:
            self._vhost.counts.queues_declared += 1
        while True:
            row, is_new = self._row(client, method, name)
            if not is_new:
                self._check_exclusive(client, row, method.exclusive)
                declared_again.check_queue(what, row, durable, method.auto_delete, arguments)
            elif client.owner.has_gone:
                self._go(row.id)
            with suppress(UnknownQueue, QueueDeleted):  # it went in this moment: once more
                return QueueDeclareOk(name) if is_new else self._counted(row)

    def _row(self, client: Client, method: QueueDeclare, name: str) -> tuple[queues.QueueRow, bool]:
        """The queue as the catalog has it, and whether it was made now."""
        made: list[QueueId] = []
        problems: list[Exception] = []

        def work(change: Change) -> tuple[queues.QueueRow, bool]:
            found = queues.get(change.connection, self._vhost.row.id, name)
            if found is not None:
                return found, False
            self._check_new(client, method, name)
            row = queues.declare(
                change,
                self._vhost.row.id,
                name,
                durable=method.durable and not method.exclusive,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
                arguments=method.arguments,
            )
            made.append(row.id)
            if method.exclusive:
                with self._vhost.lock:
                    self._vhost.own(client.owner, row.id)
            return row, True

        def prepare(told: tuple[queues.QueueRow, bool]) -> None:
            try:
                if told[1]:
                    self._vhost.start_queue(told[0], is_patient=False, is_new=True)
            except Exception as error:  # the queue is declared: its owner and the routing keep it
                problems.append(error)

        def follow(told: tuple[queues.QueueRow, bool]) -> None:
            if told[1]:
                self._vhost.counts.queues_created += 1
                self._vhost.routing.add_queue(told[0])

        try:
            told = self._vhost.changes.change(work, follow, prepare)
        except BaseException:
            with self._vhost.lock:
                for id_ in made:
                    self._vhost.disown(id_)
            raise
        for problem in problems:
            if not isinstance(problem, UnknownQueue):  # somebody was quick to delete it
                raise problem
        return told

    def _check_new(self, client: Client, method: QueueDeclare, name: str) -> None:
        """Whether it may be made, and can be."""
        what, arguments = queue_in(self._vhost.row.name, name), method.arguments
        type_ = arguments.get(TYPE) or "classic"
        dead_letters = arguments.get(EXCHANGE)
        if EXCHANGE in arguments and not isinstance(dead_letters, str):
            type_name = type_of(dead_letters)
            raise failed(f"invalid type '{type_name}' for arg '{EXCHANGE}' in {what}")
        if isinstance(dead_letters, str):
            names = {NameRole.QUEUE: name, NameRole.DEAD_LETTERS: dead_letters}
            authorize(client.access, Operation.QUEUE_DECLARE, names)
        try:
            check_new(arguments)
            self._vhost.storage.kinds.check(QueueArguments.from_table(arguments))
        except BadArgument as error:
            raise bad_argument(what, error, type_) from error
        if type_ == _QUORUM:
            wrong = {
                "auto-delete": method.auto_delete,
                "exclusive-owner": method.exclusive,
                "non-durable": not method.durable,
            }
            for property_ in [each for each, is_wrong in wrong.items() if is_wrong]:
                raise failed(f"invalid property '{property_}' for {what}")

    def _check_exclusive(self, client: Client, row: queues.QueueRow, is_asked: bool) -> None:
        with self._vhost.lock:
            owner = self._vhost.owners.get(row.id)
        if row.exclusive != is_asked or (row.exclusive and owner is not client.owner):
            raise locked(queue_in(self._vhost.row.name, row.name))

    def _counted(self, row: queues.QueueRow) -> QueueDeclareOk:
        handle = self._vhost.start_queue(row)
        handle.wait_started()
        with handle.lock:
            queue = handle.serving()
            queue.use.note()
            return QueueDeclareOk(row.name, len(queue.backing), len(queue.consumers))

    def _random_name(self) -> str:
        raw = b"".join(self._rng.id64().to_bytes(8, "big") for _ in range(2))
        return "amq.gen-" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    # -- going ---------------------------------------------------------------------------------------------------

    def _go(self, id_: QueueId, check: Callable[[Queue], None] | None = None) -> None:
        """Unless somebody else has deleted it, or has a reason why it stays."""
        with suppress(Refused):
            vhost = self._vhost
            # its first start may have failed
            handle = vhost.queue_by_id(id_) or vhost.start_queue(vhost.storage.catalog.queue(id_))
            vhost.delete_queue(handle, check)


def _check_no_consumers(queue: Queue) -> None:
    if len(queue.consumers):
        raise Refused(f"queue {queue.name!r} is in use")
