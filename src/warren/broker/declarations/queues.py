"""Queue declarations: queue.declare, queue.delete, queue.purge, and automatic deletion.

    declare   exists ──▶ not exclusive to another connection? equivalent? ──▶ its message and consumer counts
              new    ──▶ permitted? valid? ──▶ catalog, durable ──▶ started ──▶ added to the routing
    delete    name, bindings, auto-delete exchanges: one change ──▶ messages dropped ──▶ removed from the routing

A queue is deleted by a client, with its connection if it is exclusive (`release`), with its last consumer if it is
auto-delete (`consumer_removed`), or when it was unused for its expiry. All of them end in `Vhost`.

Invariants: an exclusive queue has its owner before it is visible. No lock is held while waiting for the disk.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk, QueuePurge, QueuePurgeOk
from warren.base.environment import Random
from warren.base.errors import Refused, WarrenError
from warren.base.ids import QueueId
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.broker.declarations.errors import (
    bad_argument,
    check_name,
    check_same_queue,
    failed,
    locked,
    not_found,
    plain,
    queue_in,
)
from warren.broker.errors import QueueDeleted, UnknownQueue
from warren.broker.queue import BrokerQueue
from warren.broker.queue_arguments import EXCHANGE, TYPE, BadArgument, QueueArguments, check_new, type_of
from warren.broker.queue_handle import QueueHandle
from warren.broker.vhost import Client, Owner, Vhost
from warren.catalog import queues
from warren.catalog.catalog import CatalogChange, FunctionChange
from warren.catalog.rows import RowWriter

_QUEUE_LOG = logging.getLogger("warren.queue")
_QUORUM = "quorum"


class QueueDeclarations:
    def __init__(self, vhost: Vhost, rng: Random) -> None:
        self._vhost = vhost
        self._rng = rng

    # -- methods -------------------------------------------------------------------------------------------------

    def declare(self, client: Client, method: QueueDeclare) -> QueueDeclareOk:
        name = plain(method.queue)
        answer = self._declare_passive(client, name) if method.passive else self._declare(client, method, name)
        client.set_last_queue(answer.queue)
        return answer

    def delete(self, client: Client, method: QueueDelete) -> QueueDeleteOk:
        name = self.resolve_name(client, plain(method.queue))
        authorize(client.access, Operation.QUEUE_DELETE, {NameRole.QUEUE: name})
        what, ready = queue_in(self._vhost.row.name, name), 0

        def check(queue: BrokerQueue) -> None:
            nonlocal ready
            ready = len(queue.backing)
            if method.if_empty and ready:
                raise failed(f"{what} not empty")
            if method.if_unused and len(queue.consumers):
                raise failed(f"{what} in use")

        with suppress(UnknownQueue, QueueDeleted):  # deleting a missing queue succeeds
            handle = self._vhost.find_queue(name)
            self.check_owner(client, handle)
            self._vhost.delete_queue(handle, check)
        return QueueDeleteOk(ready)

    def purge(self, client: Client, method: QueuePurge) -> QueuePurgeOk:
        name = self.resolve_name(client, method.queue)
        authorize(client.access, Operation.QUEUE_PURGE, {NameRole.QUEUE: name})
        try:
            handle = self._vhost.find_queue(name)
            self.check_owner(client, handle)
            count, epoch = self._vhost.queue_api.purge(handle)
        except (UnknownQueue, QueueDeleted) as error:
            raise not_found(queue_in(self._vhost.row.name, name)) from error
        self._vhost.storage.log.wait(epoch)
        return QueuePurgeOk(count)

    # -- other calls ---------------------------------------------------------------------------------------------

    def resolve_name(self, client: Client, name: str) -> str:
        """An empty name is the queue that this channel declared last."""
        if name or client.last_queue:
            return name or client.last_queue
        raise PeerError(ReplyCode.NOT_FOUND, "no previously declared queue")

    def check_owner(self, client: Client, handle: QueueHandle) -> None:
        """Refused if the queue is exclusive to another connection."""
        with self._vhost.lock:
            owner = self._vhost.owners.get(handle.id)
        if owner is not None and owner is not client.owner:
            raise locked(queue_in(self._vhost.row.name, handle.name))

    def release(self, owner: Owner) -> None:
        """A connection has closed: delete its exclusive queues. A queue that it declares later is deleted at once."""
        with self._vhost.lock:
            owner.has_gone = True
            ids = sorted(owner.exclusive)
        for id_ in ids:
            try:
                self._delete_if_possible(id_)
            except Exception as error:  # the other queues are deleted all the same
                what = error.what if isinstance(error, WarrenError) else repr(error)
                self._vhost.report_problem(f"an exclusive queue of {owner.name} could not be deleted: {what}")

    def consumer_removed(self, id_: QueueId) -> None:
        """The last consumer was removed: delete the queue if it is auto-delete and still has no consumer."""
        with self._vhost.storage.catalog.reading() as connection:
            row = queues.by_id(connection, id_)
        if row is not None and row.auto_delete:
            self._delete_if_possible(id_, _check_no_consumers)

    # -- declare -------------------------------------------------------------------------------------------------

    def _declare_passive(self, client: Client, name: str) -> QueueDeclareOk:
        authorize(client.access, Operation.QUEUE_DECLARE_PASSIVE, {NameRole.QUEUE: name})
        while True:
            lookup = FunctionChange(lambda writer: queues.get(writer.connection, self._vhost.row.id, name))
            self._vhost.apply(lookup)
            row = lookup.result
            if row is None:
                raise not_found(queue_in(self._vhost.row.name, name))
            self._check_exclusive(client, row, row.exclusive)
            with suppress(UnknownQueue, QueueDeleted):  # deleted since the lookup: look it up again
                return self._declare_ok(row)

    def _declare(self, client: Client, method: QueueDeclare, name: str) -> QueueDeclareOk:
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
            declaration = _QueueDeclaration(self._vhost, client, method, name)
            declaration.apply()
            row = declaration.row
            if not declaration.is_new:
                self._check_exclusive(client, row, method.exclusive)
                check_same_queue(what, row, durable, method.auto_delete, arguments)
            elif client.owner.has_gone:
                self._delete_if_possible(row.id)
            with suppress(UnknownQueue, QueueDeleted):  # deleted since: declare it again
                return QueueDeclareOk(name) if declaration.is_new else self._declare_ok(row)

    def _check_exclusive(self, client: Client, row: queues.QueueRow, is_exclusive: bool) -> None:
        with self._vhost.lock:
            owner = self._vhost.owners.get(row.id)
        if row.exclusive != is_exclusive or (row.exclusive and owner is not client.owner):
            raise locked(queue_in(self._vhost.row.name, row.name))

    def _declare_ok(self, row: queues.QueueRow) -> QueueDeclareOk:
        handle = self._vhost.start_queue(row)
        handle.wait_started()
        with handle.lock:
            queue = handle.serving()
            queue.use.note()
            return QueueDeclareOk(row.name, len(queue.backing), len(queue.consumers))

    def _random_name(self) -> str:
        raw = b"".join(self._rng.id64().to_bytes(8, "big") for _ in range(2))
        return "amq.gen-" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    # -- delete --------------------------------------------------------------------------------------------------

    def _delete_if_possible(self, id_: QueueId, check: Callable[[BrokerQueue], None] | None = None) -> None:
        """Does nothing if the queue is already deleted, or `check` refuses."""
        with suppress(Refused):
            vhost = self._vhost
            rows = vhost.storage.catalog
            handle = vhost.queue_by_id(id_) or vhost.start_queue(rows.queue(id_))  # its first start may have failed
            vhost.delete_queue(handle, check)


class _QueueDeclaration(CatalogChange):
    """The queue of this name, created if there is none."""

    row: queues.QueueRow
    is_new = False

    def __init__(self, vhost: Vhost, client: Client, method: QueueDeclare, name: str) -> None:
        self._vhost = vhost
        self._client = client
        self._method = method
        self._name = name
        self._start_error: Exception | None = None

    def apply(self) -> None:
        try:
            self._vhost.apply(self)
        except BaseException:
            if self.is_new:
                with self._vhost.lock:
                    self._vhost.disown(self.row.id)
            raise
        if self.is_new:
            facts = {"queue": self._name, "vhost": self._vhost.row.name, "user": self._client.access.user}
            _QUEUE_LOG.debug("queue declared", extra={"facts": facts})
        # UnknownQueue: deleted before it could start
        if self._start_error is not None and not isinstance(self._start_error, UnknownQueue):
            raise self._start_error

    def write(self, writer: RowWriter) -> None:
        method, vhost_id = self._method, self._vhost.row.id
        row = queues.get(writer.connection, vhost_id, self._name)
        if row is not None:
            self.row = row
            return
        self._vhost.check_queue_limit(writer, self._name)
        self._check_new()
        self.row = queues.declare(
            writer,
            vhost_id,
            self._name,
            durable=method.durable and not method.exclusive,
            exclusive=method.exclusive,
            auto_delete=method.auto_delete,
            arguments=method.arguments,
        )
        self.is_new = True
        if method.exclusive:
            with self._vhost.lock:
                self._vhost.own(self._client.owner, self.row.id)

    def start(self) -> None:
        if not self.is_new:
            return
        try:
            self._vhost.start_queue(self.row, is_patient=False, is_new=True)
        except Exception as error:  # the queue is declared: its owner and the routing keep it
            self._start_error = error

    def update_routing(self) -> None:
        if self.is_new:
            self._vhost.counts.queues_created += 1
            self._vhost.routing.add_queue(self.row)

    def _check_new(self) -> None:
        """Refuse a queue that the user may not create, or whose arguments are invalid."""
        method, dead_letters = self._method, self._method.arguments.get(EXCHANGE)
        if isinstance(dead_letters, str):
            names = {NameRole.QUEUE: self._name, NameRole.DEAD_LETTERS: dead_letters}
            authorize(self._client.access, Operation.QUEUE_DECLARE, names)
        flags = method.durable, method.auto_delete, method.exclusive
        check_new_queue(
            queue_in(self._vhost.row.name, self._name), *flags, method.arguments, self._vhost.storage.kinds.check
        )


def check_new_queue(
    what: str,
    durable: bool,
    auto_delete: bool,
    exclusive: bool,
    arguments: Mapping[str, Any],
    check_kind: Callable[[QueueArguments], None],
) -> None:
    """Refuse properties that no queue may have. `check_kind` refuses backing queues that are not offered."""
    type_ = arguments.get(TYPE) or "classic"
    if EXCHANGE in arguments and not isinstance(arguments[EXCHANGE], str):
        raise failed(f"invalid type '{type_of(arguments[EXCHANGE])}' for arg '{EXCHANGE}' in {what}")
    try:
        check_new(arguments)
        check_kind(QueueArguments.from_table(arguments))
    except BadArgument as error:
        raise bad_argument(what, error, type_) from error
    if type_ == _QUORUM:
        wrong = {"auto-delete": auto_delete, "exclusive-owner": exclusive, "non-durable": not durable}
        for property_ in [each for each, is_wrong in wrong.items() if is_wrong]:
            raise failed(f"invalid property '{property_}' for {what}")


def _check_no_consumers(queue: BrokerQueue) -> None:
    if len(queue.consumers):
        raise Refused(f"queue {queue.name!r} is in use")
