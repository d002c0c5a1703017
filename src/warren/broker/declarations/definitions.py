"""Exchanges, queues, bindings and parameters of any vhosts, added by one change: all of them, or none.

    administration.change(function)          function(AccessChange) ──▶ TopologyChange(change, …).declare_queue(…)
        ──▶ rows of all vhosts, one session ──▶ durable ──▶ routing of each vhost, in its order ──▶ policies in effect

An object that exists must be equivalent, as for a client that declares it; it is left as it is. Names may begin with
`amq.`: definitions of RabbitMQ contain server-named queues. Permissions are not checked: only administrators import
definitions, and those can give themselves every permission by the same document.

Queues start when they are first used, as after a restart; those that expire, or whose messages do, start at the end
(`Vhost.apply_policies`). Rows of a vhost that existed before are read once.

Invariant: a refusal names the object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from warren.amqp.errors import PeerError, ReplyCode
from warren.base.errors import Refused
from warren.broker.auth.administration import AccessChange
from warren.broker.declarations.bindings import BindingRequest, check_headers
from warren.broker.declarations.errors import (
    check_not_default,
    check_same_exchange,
    check_same_queue,
    exchange_in,
    locked,
    not_found,
    queue_in,
)
from warren.broker.declarations.exchanges import check_new_alternate
from warren.broker.declarations.queues import check_new_queue
from warren.broker.exchanges.routing import KINDS
from warren.broker.policies import MAX_QUEUES, VhostPolicies
from warren.broker.queue_arguments import QueueArguments
from warren.broker.vhost import Vhost
from warren.catalog import bindings, exchanges, parameters, queues
from warren.catalog.bindings import BindingRow
from warren.catalog.catalog import CatalogChange
from warren.catalog.exchanges import ExchangeRow
from warren.catalog.parameters import ParameterRow
from warren.catalog.queues import QueueRow
from warren.catalog.rows import RowWriter
from warren.catalog.vhosts import VhostRow

CheckKind = Callable[[QueueArguments], None]


class QueueLimitExceeded(Refused):
    """The vhost may not have so many queues. The text is RabbitMQ's."""

    def __init__(self, vhost: str, new: int, limit: int, present: int) -> None:
        super().__init__(
            f'Adding {new} queue(s) to virtual host "{vhost}" would exceed the limit of {limit} queue(s).\n\n'
            f"This virtual host currently has {present} queue(s) defined.\n\nImport aborted!"
        )


class TopologyChange:
    """Operations on the rows of one change. `finish` comes last."""

    def __init__(self, change: AccessChange, check_kind: CheckKind) -> None:
        """`check_kind` refuses backing queues that are not offered."""
        self._change = change
        self._check_kind = check_kind
        self._by_vhost: dict[str, _VhostTopology] = {}

    def put_parameter(self, vhost: str, component: str, name: str, value: Any) -> None:
        """The value was checked."""
        self._of(vhost).put_parameter(component, name, value)

    def declare_exchange(
        self,
        vhost: str,
        name: str,
        type_: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        self._of(vhost).declare_exchange(name, type_, durable, auto_delete, internal, arguments)

    def declare_queue(
        self, vhost: str, name: str, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]
    ) -> None:
        self._of(vhost).declare_queue(name, durable, auto_delete, arguments, self._check_kind)

    def bind(self, vhost: str, request: BindingRequest) -> None:
        self._of(vhost).bind(request)

    def finish(self) -> None:
        """Refused if a vhost would have more queues than it may."""
        for each in self._by_vhost.values():
            each.finish()

    def _of(self, name: str) -> _VhostTopology:
        found = self._by_vhost.get(name)
        if found is None:
            row = self._change.vhost(name)
            served = self._change.served_vhost(row)
            found = self._by_vhost[name] = _VhostTopology(self._change.writer, row, served)
            if served is not None:
                self._change.follow(served, found)
        return found


class _VhostTopology(CatalogChange):
    """The part of the change in one vhost. A vhost that is not served reads its rows when it is opened."""

    def __init__(self, writer: RowWriter, row: VhostRow, vhost: Vhost | None) -> None:
        self._writer = writer
        self._row = row
        self._vhost = vhost
        self._exchanges = {each.name: each for each in exchanges.every(writer.connection, row.id)}
        self._queues = {each.name: each for each in queues.every(writer.connection, row.id)}
        self._new_exchanges: list[ExchangeRow] = []
        self._new_queues: list[QueueRow] = []
        self._bindings: list[BindingRow] = []
        self._parameters: list[ParameterRow] = []  # all that it has, at the end

    # -- rows ----------------------------------------------------------------------------------------------------

    def put_parameter(self, component: str, name: str, value: Any) -> None:
        parameters.put(self._writer, self._row.id, component, name, value)

    def declare_exchange(
        self, name: str, type_: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Any]
    ) -> None:
        what = exchange_in(self._row.name, name)
        if not name:
            raise PeerError(ReplyCode.ACCESS_REFUSED, f"{what} is the default exchange: it cannot be declared")
        if type_ not in KINDS:
            raise PeerError(ReplyCode.COMMAND_INVALID, f"invalid exchange type '{type_}' of {what}")
        row = self._exchanges.get(name)
        if row is not None:
            check_same_exchange(what, row, type_, durable, auto_delete, internal, arguments)
            return
        check_new_alternate(what, arguments)
        flags = {"durable": durable, "auto_delete": auto_delete, "internal": internal}
        row = exchanges.declare(self._writer, self._row.id, name, type_, **flags, arguments=arguments)
        self._exchanges[name] = row
        self._new_exchanges.append(row)

    def declare_queue(
        self, name: str, durable: bool, auto_delete: bool, arguments: Mapping[str, Any], check_kind: CheckKind
    ) -> None:
        what, row = queue_in(self._row.name, name), self._queues.get(name)
        if row is not None:
            if row.exclusive:
                raise locked(what)
            check_same_queue(what, row, durable, auto_delete, arguments)
            return
        check_new_queue(what, durable, auto_delete, False, arguments, check_kind)
        flags = {"durable": durable, "auto_delete": auto_delete}
        row = queues.declare(self._writer, self._row.id, name, **flags, arguments=arguments)
        self._queues[name] = row
        self._new_queues.append(row)

    def bind(self, request: BindingRequest) -> None:
        if request == BindingRequest("", request.target, True, request.target, {}):
            return  # every queue has it
        check_not_default(request.source, *(() if request.is_queue else (request.target,)))
        source = self._exchanges.get(request.source)
        target = (self._queues if request.is_queue else self._exchanges).get(request.target)
        if source is None:
            raise not_found(exchange_in(self._row.name, request.source))
        if target is None:
            raise not_found((queue_in if request.is_queue else exchange_in)(self._row.name, request.target))
        if source.type == "headers":
            check_headers(request.arguments)
        self._bindings.append(bindings.bind(self._writer, source, target, request.routing_key, request.arguments))

    def finish(self) -> None:
        self._parameters = parameters.every(self._writer.connection, self._row.id)
        limit = VhostPolicies.of(self._parameters).limit(MAX_QUEUES)
        new, all_ = len(self._new_queues), len(self._queues)
        if new and limit is not None and all_ > limit:
            raise QueueLimitExceeded(self._row.name, new, limit, all_ - new)

    # -- effects -------------------------------------------------------------------------------------------------

    def write(self, writer: RowWriter) -> None:
        """The whole change has written the rows."""

    def update_routing(self) -> None:
        vhost = self._vhost
        assert vhost is not None, "only a vhost that is served follows"
        vhost.set_policies(VhostPolicies.of(self._parameters))
        for exchange in self._new_exchanges:
            vhost.routing.add_exchange(exchange)
        for queue in self._new_queues:
            vhost.routing.add_queue(queue)
        vhost.counts.queues_created += len(self._new_queues)
        for binding in self._bindings:
            vhost.routing.add_binding(binding)
