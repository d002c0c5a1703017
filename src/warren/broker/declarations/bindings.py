"""Bindings: queue.bind, queue.unbind, exchange.bind, exchange.unbind.

To bind, both ends must be there. To unbind, nothing must be there at all: what is not bound can be unbound. Whoever
unbinds the last binding from an exchange that goes with it, has it deleted in the same change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from warren.base.ids import ExchangeId
from warren.broker.auth.permissions import NameRole, Operation, Right, authorize, authorize_topic
from warren.broker.declarations.errors import check_not_default, exchange_in, failed, locked, not_found, queue_in
from warren.broker.exchanges.errors import BadBinding
from warren.broker.exchanges.headers import check_arguments
from warren.broker.vhost import Client, Vhost
from warren.catalog import bindings, exchanges, queues
from warren.catalog import bindings as auto_delete
from warren.catalog.bindings import BindingRow
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow
from warren.catalog.rows import Change


class BindingRequest(NamedTuple):
    """A binding as a client names it."""

    source: str
    target: str
    is_queue: bool
    routing_key: str
    arguments: Mapping[str, Any]


class BindingDeclarations:
    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost

    def bind(self, client: Client, asked: BindingRequest) -> None:
        self._check(client, asked, Operation.QUEUE_BIND if asked.is_queue else Operation.EXCHANGE_BIND)

        def work(change: Change) -> BindingRow:
            source, target = self._ends(change, client, asked)
            if source is None:
                raise not_found(exchange_in(self._vhost.row.name, asked.source))
            if target is None:
                name_in = queue_in if asked.is_queue else exchange_in
                raise not_found(name_in(self._vhost.row.name, asked.target))
            self._check_owner(client, target)
            if source.type == "headers":
                _check_headers(asked.arguments)
            return bindings.bind(change, source, target, asked.routing_key, asked.arguments)

        self._vhost.changes.change(work, self._vhost.routing.add_binding)

    def unbind(self, client: Client, asked: BindingRequest) -> None:
        self._check(client, asked, Operation.QUEUE_UNBIND if asked.is_queue else Operation.EXCHANGE_UNBIND)

        def work(change: Change) -> tuple[BindingRow, list[ExchangeId]] | None:
            source, target = self._ends(change, client, asked)
            if source is None or target is None:
                return None
            told = (source, target, asked.routing_key, asked.arguments)
            found = bindings.find(change.connection, *told)
            if found is None:
                return None
            self._check_owner(client, target)
            bindings.unbind(change, *told)
            return found, auto_delete.remove_unused(change, [source.id])

        def follow(told: tuple[BindingRow, list[ExchangeId]] | None) -> None:
            if told is not None:
                self._vhost.routing.remove_binding(told[0])
                for id_ in told[1]:
                    self._vhost.routing.remove_exchange(id_)

        self._vhost.changes.change(work, follow)

    def _check(self, client: Client, asked: BindingRequest, operation: Operation) -> None:
        check_not_default(asked.source, *(() if asked.is_queue else (asked.target,)))
        target = NameRole.QUEUE if asked.is_queue else NameRole.DESTINATION
        authorize(client.access, operation, {target: asked.target, NameRole.EXCHANGE: asked.source})

    def _ends(
        self, change: Change, client: Client, asked: BindingRequest
    ) -> tuple[ExchangeRow | None, QueueRow | ExchangeRow | None]:
        """What is there of both; refused if the key may not be read at the source."""
        vhost = self._vhost.row.id
        source = exchanges.get(change.connection, vhost, asked.source)
        if source is not None and source.type == "topic":
            authorize_topic(client.access, Right.READ, source.name, asked.routing_key)
        if asked.is_queue:
            return source, queues.get(change.connection, vhost, asked.target)
        return source, exchanges.get(change.connection, vhost, asked.target)

    def _check_owner(self, client: Client, target: QueueRow | ExchangeRow) -> None:
        if isinstance(target, QueueRow) and target.exclusive:
            with self._vhost.lock:
                owner = self._vhost.owners.get(target.id)
            if owner is not client.owner:
                raise locked(queue_in(self._vhost.row.name, target.name))


def _check_headers(arguments: Mapping[str, Any]) -> None:
    try:
        check_arguments(arguments)
    except BadBinding as error:
        raise failed(f"Invalid x-match field: {error.what}; {error.hint}") from error
