"""Who may ask for what: RabbitMQ's tags, and which vhosts somebody sees.

    management      may log in here, and sees the vhosts in which something is permitted to it
    policymaker     the same, and policies                       monitoring    the same, and the server itself
    administrator   everything, in every vhost

A tag is not a permission: in a vhost that somebody sees, what is done to queues and exchanges is asked of the table of
`broker.permissions` besides, as for AMQP.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from warren.base.ids import UserId, VhostId
from warren.broker.permissions import Access, access_to
from warren.broker.realm import Vhost
from warren.catalog import permissions
from warren.catalog.users import UserRow
from warren.management.refusals import not_found, not_permitted
from warren.management.running import BrokerView

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS: Final = (ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT)

# Whoever could open the socket of this machine: it is of this user, and mode 0600.
SOCKET_USER: Final = UserRow(UserId(0), "local socket", "", "", (ADMINISTRATOR,))


class AccessRule(Enum):
    """The value: who may, and what the others are told."""

    ANYBODY = (), ""
    MANAGEMENT = TAGS, "Not management user"
    MONITORING = (ADMINISTRATOR, MONITORING), "Not monitor user"
    POLICYMAKER = (ADMINISTRATOR, POLICYMAKER), "Not policymaker user"
    ADMINISTRATOR = (ADMINISTRATOR,), "Not administrator user"

    def check(self, user: UserRow) -> None:
        """Refused if none of its tags will do. Whoever may not even log in is told that first."""
        for who in (AccessRule.MANAGEMENT, self):
            tags, reason = who.value
            if tags and not set(tags) & set(user.tags):
                raise not_permitted(reason)


def is_administrator(user: UserRow) -> bool:
    return ADMINISTRATOR in user.tags


def sees_server(user: UserRow) -> bool:
    return bool({ADMINISTRATOR, MONITORING} & set(user.tags))


def visible(running: BrokerView, user: UserRow) -> list[Vhost]:
    """The vhosts whose contents somebody sees."""
    realms = running.realms.every()
    if is_administrator(user):
        return realms
    with running.catalog.reading() as connection:
        permitted = {each.vhost_id for each in permissions.every(connection, user.id)}
    return [realm for realm in realms if realm.vhost.id in permitted]


def entered(running: BrokerView, user: UserRow, name: str) -> Vhost:
    """The vhost of this name; one that is not there is told as such, one that is not theirs as not permitted."""
    found = next((realm for realm in running.realms.every() if realm.vhost.name == name), None)
    if found is None:
        raise not_found()
    if not is_administrator(user) and not _is_permitted(running, user, found.vhost.id):
        raise not_permitted("User not authorised to access virtual host")
    return found


def access_of(running: BrokerView, user: UserRow, realm: Vhost) -> Access:
    """What it may do there, for `authorize`. The socket's user may do everything."""
    if user is SOCKET_USER:
        return Access(user.name, realm.vhost.name, ".*", ".*", ".*", {})
    return access_to(running.catalog, user, realm.vhost)


def _is_permitted(running: BrokerView, user: UserRow, vhost: VhostId) -> bool:
    with running.catalog.reading() as connection:
        return permissions.get(connection, user.id, vhost) is not None
