"""exchange.declare and exchange.delete.

Deleting an exchange removes all bindings from it and to it. The same change deletes an auto-delete exchange that loses
its last binding by that. Queues and exchanges that were bound to the deleted one stay.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import ExchangeDeclare, ExchangeDeclareOk, ExchangeDelete, ExchangeDeleteOk
from warren.base.ids import ExchangeId
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.broker.declarations.errors import (
    RESERVED,
    check_name,
    check_not_default,
    check_same_exchange,
    exchange_in,
    failed,
    not_found,
    plain,
    refused,
)
from warren.broker.exchanges.routing import ALTERNATE, KINDS
from warren.broker.queue_arguments import type_of
from warren.broker.vhost import Client, Vhost
from warren.catalog import bindings, exchanges
from warren.catalog.catalog import CatalogChange, FunctionChange
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.rows import RowWriter

_QUEUE_LOG = logging.getLogger("warren.queue")


class ExchangeDeclarations:
    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost

    def declare(self, client: Client, method: ExchangeDeclare) -> ExchangeDeclareOk:
        name = plain(method.exchange)
        if method.passive:
            self._check_exists(client, name)
        else:
            self._declare(client, method, name)
        return ExchangeDeclareOk()

    def delete(self, client: Client, method: ExchangeDelete) -> ExchangeDeleteOk:
        name = plain(method.exchange)
        check_not_default(name)
        if name.startswith(RESERVED):
            raise refused(f"deletion of system {exchange_in(self._vhost.row.name, name)} not allowed")
        authorize(client.access, Operation.EXCHANGE_DELETE, {NameRole.EXCHANGE: name})

        deletion = _ExchangeDeletion(self._vhost, name, method.if_unused)
        self._vhost.apply(deletion)
        if deletion.removed:
            self._log("exchange deleted", client, name)
        return ExchangeDeleteOk()

    def _check_exists(self, client: Client, name: str) -> None:
        check_not_default(name)
        authorize(client.access, Operation.EXCHANGE_DECLARE_PASSIVE, {NameRole.EXCHANGE: name})
        lookup = FunctionChange(lambda writer: exchanges.get(writer.connection, self._vhost.row.id, name))
        self._vhost.apply(lookup)
        if lookup.result is None:
            raise not_found(exchange_in(self._vhost.row.name, name))

    def _declare(self, client: Client, method: ExchangeDeclare, name: str) -> None:
        if method.type not in KINDS:
            raise PeerError(ReplyCode.COMMAND_INVALID, f"invalid exchange type '{method.type}'")
        check_not_default(name)
        authorize(client.access, Operation.EXCHANGE_DECLARE, {NameRole.EXCHANGE: name})
        declaration = _ExchangeDeclaration(self._vhost, client, method, name)
        self._vhost.apply(declaration)
        if declaration.is_new:
            self._log("exchange declared", client, name)
        else:
            flags = (method.type, method.durable, method.auto_delete, method.internal)
            what = exchange_in(self._vhost.row.name, name)
            check_same_exchange(what, declaration.row, *flags, method.arguments)

    def _log(self, event: str, client: Client, name: str) -> None:
        facts = {"exchange": name, "vhost": self._vhost.row.name, "user": client.access.user}
        _QUEUE_LOG.debug(event, extra={"facts": facts})


class _ExchangeDeclaration(CatalogChange):
    row: ExchangeRow
    is_new = False

    def __init__(self, vhost: Vhost, client: Client, method: ExchangeDeclare, name: str) -> None:
        self._vhost = vhost
        self._client = client
        self._method = method
        self._name = name

    def write(self, writer: RowWriter) -> None:
        method, vhost_id = self._method, self._vhost.row.id
        row = exchanges.get(writer.connection, vhost_id, self._name)
        if row is None:
            self._check_new()
            flags = {"durable": method.durable, "auto_delete": method.auto_delete, "internal": method.internal}
            row = exchanges.declare(writer, vhost_id, self._name, method.type, **flags, arguments=method.arguments)
            self.is_new = True
        self.row = row

    def update_routing(self) -> None:
        if self.is_new:
            self._vhost.routing.add_exchange(self.row)

    def _check_new(self) -> None:
        arguments = self._method.arguments
        check_name("exchange", self._name)
        check_new_alternate(exchange_in(self._vhost.row.name, self._name), arguments)
        if ALTERNATE in arguments:
            names = {NameRole.EXCHANGE: self._name, NameRole.ALTERNATE: arguments[ALTERNATE]}
            authorize(self._client.access, Operation.EXCHANGE_DECLARE, names)


def check_new_alternate(what: str, arguments: Mapping[str, Any]) -> None:
    if ALTERNATE in arguments and not isinstance(arguments[ALTERNATE], str):
        raise failed(f"invalid type '{type_of(arguments[ALTERNATE])}' for arg '{ALTERNATE}' in {what}")


class _ExchangeDeletion(CatalogChange):
    def __init__(self, vhost: Vhost, name: str, if_unused: bool) -> None:
        self._vhost = vhost
        self._name = name
        self._if_unused = if_unused
        self.removed: list[ExchangeId] = []

    def write(self, writer: RowWriter) -> None:
        exchange = exchanges.get(writer.connection, self._vhost.row.id, self._name)
        if exchange is None:
            return
        if self._if_unused and bindings.is_source(writer.connection, exchange.id):
            raise failed(f"{exchange_in(self._vhost.row.name, self._name)} in use")
        sources = bindings.sources_of(writer.connection, exchange=exchange.id)
        exchanges.delete(writer, exchange.id)
        self.removed = [exchange.id, *bindings.remove_unused(writer, sources)]

    def update_routing(self) -> None:
        for id_ in self.removed:
            self._vhost.routing.remove_exchange(id_)
