"""exchange.declare and exchange.delete.

Deleting one takes the bindings from it and to it along. An exchange before it that goes with its last binding goes in
the same change; what it handed on to stays.
"""

from __future__ import annotations

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import ExchangeDeclare, ExchangeDeclareOk, ExchangeDelete, ExchangeDeleteOk
from warren.base.ids import ExchangeId
from warren.broker.auth.permissions import NameRole, Operation, authorize
from warren.broker.declarations import errors as declared_again
from warren.broker.declarations.errors import (
    RESERVED,
    check_name,
    check_not_default,
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
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.rows import Change


class ExchangeDeclarations:
    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost

    def declare(self, client: Client, method: ExchangeDeclare) -> ExchangeDeclareOk:
        name = plain(method.exchange)
        if method.passive:
            self._look(client, name)
        else:
            self._declared(client, method, name)
        return ExchangeDeclareOk()

    def delete(self, client: Client, method: ExchangeDelete) -> ExchangeDeleteOk:
        name = plain(method.exchange)
        what = exchange_in(self._vhost.row.name, name)
        check_not_default(name)
        if name.startswith(RESERVED):
            raise refused(f"deletion of system {what} not allowed")
        authorize(client.access, Operation.EXCHANGE_DELETE, {NameRole.EXCHANGE: name})

        def work(change: Change) -> list[ExchangeId]:
            found = exchanges.get(change.connection, self._vhost.row.id, name)
            if found is None:
                return []
            if method.if_unused and bindings.is_source(change.connection, found.id):
                raise failed(f"{what} in use")
            sources = bindings.sources_of(change.connection, exchange=found.id)
            exchanges.delete(change, found.id)
            return [found.id, *bindings.remove_unused(change, sources)]

        def follow(gone: list[ExchangeId]) -> None:
            for id_ in gone:
                self._vhost.routing.remove_exchange(id_)

        self._vhost.changes.change(work, follow)
        return ExchangeDeleteOk()

    def _look(self, client: Client, name: str) -> None:
        check_not_default(name)
        authorize(client.access, Operation.EXCHANGE_DECLARE_PASSIVE, {NameRole.EXCHANGE: name})
        if (
            self._vhost.changes.change(lambda change: exchanges.get(change.connection, self._vhost.row.id, name))
            is None
        ):
            raise not_found(exchange_in(self._vhost.row.name, name))

    def _declared(self, client: Client, method: ExchangeDeclare, name: str) -> None:
        if method.type not in KINDS:
            raise PeerError(ReplyCode.COMMAND_INVALID, f"invalid exchange type '{method.type}'")
        check_not_default(name)
        authorize(client.access, Operation.EXCHANGE_DECLARE, {NameRole.EXCHANGE: name})

        def work(change: Change) -> tuple[ExchangeRow, bool]:
            found = exchanges.get(change.connection, self._vhost.row.id, name)
            if found is not None:
                return found, False
            self._check_new(client, method, name)
            flags = {"durable": method.durable, "auto_delete": method.auto_delete, "internal": method.internal}
            vhost_id = self._vhost.row.id
            row = exchanges.declare(change, vhost_id, name, method.type, **flags, arguments=method.arguments)
            return row, True

        def follow(told: tuple[ExchangeRow, bool]) -> None:
            if told[1]:
                self._vhost.routing.add_exchange(told[0])

        row, is_new = self._vhost.changes.change(work, follow)
        if not is_new:
            flags = (method.type, method.durable, method.auto_delete, method.internal)
            declared_again.check_exchange(exchange_in(self._vhost.row.name, name), row, *flags, method.arguments)

    def _check_new(self, client: Client, method: ExchangeDeclare, name: str) -> None:
        check_name("exchange", name)
        if ALTERNATE not in method.arguments:
            return
        alternate = method.arguments[ALTERNATE]
        if not isinstance(alternate, str):
            what, type_name = exchange_in(self._vhost.row.name, name), type_of(alternate)
            raise failed(f"invalid type '{type_name}' for arg '{ALTERNATE}' in {what}")
        names = {NameRole.EXCHANGE: name, NameRole.ALTERNATE: alternate}
        authorize(client.access, Operation.EXCHANGE_DECLARE, names)
