"""Bindings: queue.bind, queue.unbind, exchange.bind, exchange.unbind.

Bind requires both ends to exist. Unbind requires nothing: unbinding what does not exist succeeds. When unbind removes
the last binding of an auto-delete exchange, the same change deletes the exchange.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from warren.base.ids import ExchangeId
from warren.broker.auth.permissions import NameRole, Operation, Right, authorize, authorize_topic
from warren.broker.declarations.errors import check_not_default, exchange_in, failed, locked, not_found, queue_in
from warren.broker.exchanges.headers import check_arguments
from warren.broker.exchanges.simple import BadBinding
from warren.broker.vhost import Client, Vhost
from warren.catalog import bindings, exchanges, queues
from warren.catalog.bindings import BindingRow
from warren.catalog.catalog import CatalogChange
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.queues import QueueRow
from warren.catalog.rows import RowWriter

_QUEUE_LOG = logging.getLogger("warren.queue")


class BindingRequest(NamedTuple):
    """A binding as named by the client."""

    source: str
    target: str
    is_queue: bool
    routing_key: str
    arguments: Mapping[str, Any]


class BindingDeclarations:
    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost

    def bind(self, client: Client, request: BindingRequest) -> None:
        self._check(client, request, Operation.QUEUE_BIND if request.is_queue else Operation.EXCHANGE_BIND)
        self._vhost.apply(_Bind(self._vhost, client, request))
        self._log("binding added", client, request)

    def unbind(self, client: Client, request: BindingRequest) -> None:
        self._check(client, request, Operation.QUEUE_UNBIND if request.is_queue else Operation.EXCHANGE_UNBIND)
        change = _Unbind(self._vhost, client, request)
        self._vhost.apply(change)
        if change.binding is not None:
            self._log("binding removed", client, request)

    def _log(self, event: str, client: Client, request: BindingRequest) -> None:
        facts = {"source": request.source, "destination": request.target, "routing_key": request.routing_key}
        where = {"vhost": self._vhost.row.name, "user": client.access.user}
        _QUEUE_LOG.debug(event, extra={"facts": facts | where})

    def _check(self, client: Client, request: BindingRequest, operation: Operation) -> None:
        check_not_default(request.source, *(() if request.is_queue else (request.target,)))
        target = NameRole.QUEUE if request.is_queue else NameRole.DESTINATION
        authorize(client.access, operation, {target: request.target, NameRole.EXCHANGE: request.source})


class _BindingChange(CatalogChange):
    def __init__(self, vhost: Vhost, client: Client, request: BindingRequest) -> None:
        self._vhost = vhost
        self._client = client
        self._request = request

    def _find_ends(self, writer: RowWriter) -> tuple[ExchangeRow | None, QueueRow | ExchangeRow | None]:
        """The rows of source and target; refused if the user may not read the routing key at the source."""
        request, vhost = self._request, self._vhost.row.id
        source = exchanges.get(writer.connection, vhost, request.source)
        if source is not None and source.type == "topic":
            authorize_topic(self._client.access, Right.READ, source.name, request.routing_key)
        if request.is_queue:
            return source, queues.get(writer.connection, vhost, request.target)
        return source, exchanges.get(writer.connection, vhost, request.target)

    def _check_owner(self, target: QueueRow | ExchangeRow) -> None:
        if isinstance(target, QueueRow) and target.exclusive:
            with self._vhost.lock:
                owner = self._vhost.owners.get(target.id)
            if owner is not self._client.owner:
                raise locked(queue_in(self._vhost.row.name, target.name))


class _Bind(_BindingChange):
    _binding: BindingRow

    def write(self, writer: RowWriter) -> None:
        request, vhost = self._request, self._vhost.row.name
        source, target = self._find_ends(writer)
        if source is None:
            raise not_found(exchange_in(vhost, request.source))
        if target is None:
            raise not_found((queue_in if request.is_queue else exchange_in)(vhost, request.target))
        self._check_owner(target)
        if source.type == "headers":
            check_headers(request.arguments)
        self._binding = bindings.bind(writer, source, target, request.routing_key, request.arguments)

    def update_routing(self) -> None:
        self._vhost.routing.add_binding(self._binding)


class _Unbind(_BindingChange):
    """Also deletes the source if it is auto-delete and this was its last binding."""

    binding: BindingRow | None = None  # None: there was none
    _exchanges: Sequence[ExchangeId] = ()

    def write(self, writer: RowWriter) -> None:
        source, target = self._find_ends(writer)
        if source is None or target is None:
            return
        binding = (source, target, self._request.routing_key, self._request.arguments)
        self.binding = bindings.find(writer.connection, *binding)
        if self.binding is not None:
            self._check_owner(target)
            bindings.unbind(writer, *binding)
            self._exchanges = bindings.remove_unused(writer, [source.id])

    def update_routing(self) -> None:
        if self.binding is not None:
            self._vhost.routing.remove_binding(self.binding)
        for id_ in self._exchanges:
            self._vhost.routing.remove_exchange(id_)


def check_headers(arguments: Mapping[str, Any]) -> None:
    try:
        check_arguments(arguments)
    except BadBinding as error:
        raise failed(f"Invalid x-match field: {error.what}; {error.hint}") from error
