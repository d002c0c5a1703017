"""Administration: changes of users, vhosts, permissions and user limits, and their effects on what is running.

A change may also add queues, exchanges, bindings and policies to its vhosts (declarations/definitions).

    Administration.change(function)
        function(AccessChange) ──▶ rows, one change of the catalog ──▶ durable
            ──▶ vhosts are opened, or withdrawn ──▶ connections are closed, or get their new permissions
            ──▶ the messages of deleted vhosts are removed, policies reach the queues

`AccessChange` has the operations. Any number of them may be in one change: all of them happen, or none.

    administration.change(lambda change: change.put_permissions("ann", "/", ".*", ".*", ".*"))

HTTP uses it. The first start creates its user without it (app/broker): nothing is running then.

Invariants
* A change that is refused has no effects. Effects begin when the change is durable; a crash before they end leaves what
  is durable, and the next start has it. A deleted vhost is whole or gone: its messages have no queue after a crash, and
  are skipped.
* The lock is held from a change until connections have it, so that they get the state of the newest change. Messages
  are removed without it.
* On return, the next operation of every open connection is checked against the new permissions.
* Patterns are checked before they are stored (permissions). Names are checked by the catalog.

Hashes of passwords: passwords. They are computed by the caller, before the change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from warren.base.errors import OutOfRoom, Refused
from warren.base.ids import QueueId, UserId, VhostId
from warren.base.threads import Threads
from warren.broker.auth.passwords import Hashing
from warren.broker.auth.permissions import Access, accesses_of, check_patterns
from warren.broker.errors import QueuesClosed
from warren.broker.vhost import Vhost
from warren.broker.vhosts import UnknownVhost, Vhosts
from warren.catalog import permissions, users, vhosts
from warren.catalog.catalog import Catalog, CatalogChange, JoinedOrder
from warren.catalog.rows import RowWriter
from warren.catalog.users import UserRow
from warren.catalog.vhosts import VhostRow

_LOG = logging.getLogger(__name__)
Result = TypeVar("Result")

CONNECTIONS_MAX: Final = "max-connections"
CHANNELS_MAX: Final = "max-channels"
USER_LIMITS: Final = (CONNECTIONS_MAX, CHANNELS_MAX)


class UnknownUser(Refused):
    """There is no user of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"user {name!r} not found", "create it first")
        self.name = name


class BadLimit(Refused):
    """Not a limit of users, or not an integer. The text is RabbitMQ's."""


class Credentials(NamedTuple):
    """An empty hash: no password is accepted."""

    password_hash: str
    hashing_algorithm: str


NO_PASSWORD: Final = Credentials("", Hashing.SHA256.value)


class Patterns(NamedTuple):
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class AccessUpdate:
    """The effects of a change on connections. A user without access to its vhost stays connected, as in RabbitMQ, and
    may do nothing there."""

    deleted_users: Collection[UserId] = ()
    deleted_vhosts: Collection[VhostId] = ()
    users: Mapping[UserId, UserRow] = field(default_factory=dict)  # whose permissions or limits may have changed
    access: Mapping[tuple[UserId, VhostId], Access] = field(default_factory=dict)  # all that they have

    def access_of(self, user: UserRow, vhost: VhostRow) -> Access:
        return self.access.get((user.id, vhost.id)) or Access(user.name, vhost.name, "", "", "", {})


class AccessChange:
    """Operations on the rows of one change, and what they affect."""

    def __init__(self, writer: RowWriter, vhosts: Vhosts, order: JoinedOrder) -> None:
        self.writer = writer
        self._vhosts = vhosts
        self._order = order
        self.followed_by: list[Vhost] = []  # whose routing the change updates
        self.users: dict[UserId, str] = {}  # changed
        self.deleted_users: dict[UserId, str] = {}
        self.vhosts: dict[VhostId, VhostRow] = {}  # new, or described
        self.deleted_vhosts: dict[VhostId, tuple[VhostRow, list[QueueId]]] = {}
        self.events: list[tuple[str, dict[str, object]]] = []  # for the log

    # -- users ---------------------------------------------------------------------------------------------------

    def put_user(
        self,
        name: str,
        credentials: Credentials | None,
        tags: Sequence[str],
        limits: Mapping[str, object] | None = None,
    ) -> bool:
        """Create or replace a user; whether it is new. Without credentials the present ones stay, and a new user has
        no password. `limits` None keeps the present ones."""
        present = users.get(self.writer.connection, name)
        is_new = present is None
        if credentials is None:
            credentials = (
                NO_PASSWORD if present is None else Credentials(present.password_hash, present.hashing_algorithm)
            )
        checked = None if limits is None else {limit: checked_limit(limit, value) for limit, value in limits.items()}
        row = users.put(self.writer, name, *credentials, tags, checked)
        self._changed(row, "user created" if is_new else "user changed", tags=",".join(row.tags))
        return is_new

    def delete_user(self, name: str) -> None:
        row = self._user(name)
        users.delete(self.writer, row.id)
        self.users.pop(row.id, None)
        self.deleted_users[row.id] = name
        self.events.append(("user deleted", {"user": name}))

    def set_user_limit(self, name: str, limit: str, value: object) -> None:
        row = self._user(name)
        limits = {**row.limits, limit: checked_limit(limit, value)}
        self._changed(users.set_limits(self.writer, row.id, limits), "user limit set", **{limit: value})

    def clear_user_limit(self, name: str, limit: str) -> None:
        row = self._user(name)
        limits = {each: value for each, value in row.limits.items() if each != limit}
        self._changed(users.set_limits(self.writer, row.id, limits), "user limit cleared", limit=limit)

    # -- vhosts --------------------------------------------------------------------------------------------------

    def put_vhost(self, name: str, description: str, tags: Sequence[str]) -> bool:
        """Create or describe a vhost; whether it is new."""
        is_new = vhosts.get(self.writer.connection, name) is None
        row = vhosts.declare(self.writer, name, description, tags)
        row = vhosts.describe(self.writer, row.id, description, tags)
        self.vhosts[row.id] = row
        self.events.append(("vhost created" if is_new else "vhost changed", {"vhost": name}))
        return is_new

    def delete_vhost(self, name: str) -> None:
        row = self.vhost(name)
        self.deleted_vhosts[row.id] = row, vhosts.delete(self.writer, row.id)
        self.vhosts.pop(row.id, None)
        self.events.append(("vhost deleted", {"vhost": name}))

    # -- permissions ---------------------------------------------------------------------------------------------

    def put_permissions(self, user: str, vhost: str, patterns: Patterns) -> bool:
        """Whether there were none."""
        check_patterns(*patterns)
        user_row, vhost_row = self._user(user), self.vhost(vhost)
        is_new = permissions.get(self.writer.connection, user_row.id, vhost_row.id) is None
        permissions.put(self.writer, user_row.id, vhost_row.id, *patterns)
        self._changed(user_row, "permissions set", vhost=vhost, **patterns._asdict())
        return is_new

    def clear_permissions(self, user: str, vhost: str) -> bool:
        """Whether there were some."""
        user_row = self._user(user)
        is_cleared = permissions.clear(self.writer, user_row.id, self.vhost(vhost).id)
        self._changed(user_row, "permissions cleared", vhost=vhost)
        return is_cleared

    def put_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> bool:
        """For one exchange; whether the user had none in this vhost, for any exchange."""
        check_patterns(write, read)
        user_row, vhost_row = self._user(user), self.vhost(vhost)
        is_new = not permissions.every_topic(self.writer.connection, user_row.id, vhost_row.id)
        permissions.put_topic(self.writer, user_row.id, vhost_row.id, exchange, write, read)
        self._changed(user_row, "topic permissions set", vhost=vhost, exchange=exchange, write=write, read=read)
        return is_new

    def clear_topic_permissions(self, user: str, vhost: str, exchange: str | None = None) -> bool:
        """For one exchange, or for all; whether the user had some in this vhost, for any exchange."""
        user_row, vhost_row = self._user(user), self.vhost(vhost)
        has_some = bool(permissions.every_topic(self.writer.connection, user_row.id, vhost_row.id))
        permissions.clear_topic(self.writer, user_row.id, vhost_row.id, exchange)
        self._changed(user_row, "topic permissions cleared", vhost=vhost)
        return has_some

    # -- what a vhost has ----------------------------------------------------------------------------------------

    def served_vhost(self, row: VhostRow) -> Vhost | None:
        """None if it is not served yet: it is new, or its start failed."""
        return next((each for each in self._vhosts.every() if each.row.id == row.id), None)

    def follow(self, vhost: Vhost, part: CatalogChange) -> None:
        """The routing of the vhost gets this part of the change in its order, and its queues the policies."""
        self._order.join(vhost.change_order, part)
        self.followed_by.append(vhost)

    # -- helpers -------------------------------------------------------------------------------------------------

    def _user(self, name: str) -> UserRow:
        row = users.get(self.writer.connection, name)
        if row is None:
            raise UnknownUser(name)
        return row

    def vhost(self, name: str) -> VhostRow:
        row = vhosts.get(self.writer.connection, name)
        if row is None:
            raise UnknownVhost(name)
        return row

    def _changed(self, user: UserRow, event: str, **facts: object) -> None:
        self.users[user.id] = user.name
        self.events.append((event, {"user": user.name, **facts}))


class _AdministrationChange(CatalogChange, Generic[Result]):
    access: AccessChange
    result: Result

    def __init__(self, function: Callable[[AccessChange], Result], vhosts: Vhosts, order: JoinedOrder) -> None:
        self._function = function
        self._vhosts = vhosts
        self._order = order

    def write(self, writer: RowWriter) -> None:
        self.access = AccessChange(writer, self._vhosts, self._order)
        self.result = self._function(self.access)


class Administration:
    """Thread-safe. Not for the event loop: a call waits for the disk, and for the loop."""

    def __init__(
        self,
        catalog: Catalog,
        vhosts: Vhosts,
        threads: Threads,
        update_connections: Callable[[AccessUpdate], None] = lambda update: None,
        is_disk_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """`update_connections` returns when all open connections have the update. `is_disk_full`: a change would wait
        for room, and logins for the change."""
        self._catalog = catalog
        self._vhosts = vhosts
        self._update_connections = update_connections
        self._is_disk_full = is_disk_full
        self._lock = threads.condition()

    def change(self, function: Callable[[AccessChange], Result]) -> Result:
        """Make all changes of the function, or none; durable and in effect on return. Refused on a full disk."""
        if self._is_disk_full():
            raise OutOfRoom("users, vhosts and permissions cannot be changed: the disk is full", "free some space")
        order = JoinedOrder()
        made = _AdministrationChange(function, self._vhosts, order)
        deleted: list[tuple[Vhost, list[QueueId]]] = []
        try:
            with self._lock:
                self._catalog.apply(made, order)
                self._take_effect(made.access, deleted)
        finally:
            for vhost, queues in deleted:
                vhost.delete(queues)
        for vhost in made.access.followed_by:
            with suppress(QueuesClosed):  # deleted since
                vhost.apply_policies()
        return made.result

    def start_vhost(self, name: str) -> None:
        """Serve a vhost of the catalog, unless it is served: an earlier attempt may have failed."""
        with self._lock:
            with self._catalog.reading() as connection:
                row = vhosts.get(connection, name)
            if row is None:
                raise UnknownVhost(name)
            self._vhosts.open(row)

    def _take_effect(self, made: AccessChange, deleted: list[tuple[Vhost, list[QueueId]]]) -> None:
        """`deleted` gets the vhosts that the caller has to end, whatever is raised."""
        for event, facts in made.events:
            _LOG.info(event, extra={"facts": facts})
        for row, queues in made.deleted_vhosts.values():
            vhost = self._vhosts.withdraw(row)
            if vhost is not None:
                deleted.append((vhost, queues))
        self._update_connections(self._update_of(made))
        for row in made.vhosts.values():
            self._vhosts.open(row).describe(row)

    def _update_of(self, made: AccessChange) -> AccessUpdate:
        with self._catalog.reading() as connection:
            rows = {row.id: row for name in made.users.values() if (row := users.get(connection, name)) is not None}
        found = {row.id: accesses_of(self._catalog, row) for row in rows.values()}
        access = {(user, vhost): each for user, by_vhost in found.items() for vhost, each in by_vhost.items()}
        return AccessUpdate(made.deleted_users, made.deleted_vhosts, rows, access)


def checked_limit(limit: str, value: object) -> int:
    if limit not in USER_LIMITS:
        raise BadLimit(f'Unrecognised terms [{{<<"{limit}">>,{_term(value)}}}] in user-limits')
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadLimit(f"{limit} should be a number, actually was {_term(value)}")
    return value


def _term(value: object) -> str:
    """As RabbitMQ writes it."""
    match value:
        case None:
            return "null"
        case str():
            return f'<<"{value[:40]}">>'
    return str(value)[:40]
