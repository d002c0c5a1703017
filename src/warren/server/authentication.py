"""Who comes in: a login checked against the users of the catalog.

    Login ──▶ a row of that name? ──▶ known since a moment ago? ──▶ hash it ──▶ may it come from there? ──▶ User
                                                                     └─ of RabbitMQ: hash it anew, as ours are

All of it blocks (SQL, and a hash of some 50 ms), so servers call it in a thread of their own. Connections that bring
the same login at the same moment share one hash.

Always true: whatever is wrong, the answer is the same, and so is the work: an unknown user costs a hash as well. Only
the log of events says why. The row is read for every login, so a changed password or a deleted user counts at once.
`LoginRefused.delay_seconds` says how long the answer should wait; the caller waits, no thread does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from warren.amqp.errors import ReplyCode, reply_text
from warren.base.errors import Refused, WarrenError
from warren.broker.passwords import Hashing, hashed, is_dated, verify
from warren.broker.permissions import may_come_from
from warren.catalog import users
from warren.catalog.catalog import Catalog
from warren.catalog.change import Change
from warren.catalog.users import UserRow
from warren.log.machine import Environment
from warren.server.back_off import BackOff
from warren.server.known_logins import KnownLogins
from warren.server.sasl import MECHANISMS, Login, read_login
from warren.server.settings import ServerSettings

__all__ = ["MECHANISMS", "Login", "LoginRefused", "UserAuthentication", "read_login"]

_LOG = logging.getLogger(__name__)


class LoginRefused(Refused):
    """AMQP: 403, with `text`. To be answered after `delay_seconds`."""

    def __init__(self, mechanism: str, delay_seconds: float) -> None:
        way = f"Login was refused using authentication mechanism {mechanism}"
        super().__init__(f"{way}. For details see the broker logfile.")
        self.delay_seconds = delay_seconds

    @property
    def text(self) -> str:
        return reply_text(ReplyCode.ACCESS_REFUSED, self.what)


@dataclass(slots=True)
class _Hashing:
    """A login that somebody is hashing."""

    is_done: bool = False
    is_right: bool = False


class UserAuthentication:
    """Any thread may ask."""

    def __init__(
        self, catalog: Catalog, machine: Environment, settings: ServerSettings, allows_md5: bool = False
    ) -> None:
        self._catalog = catalog
        self._chance = machine.chance
        self._loopback_users = frozenset(settings.loopback_users)
        self._allows_md5 = allows_md5
        self._lock = machine.threads.condition()  # of what follows
        self._known = KnownLogins(machine.chance)
        self._back_off = BackOff(machine.clock, settings.login_delay_seconds)
        self._under_way: dict[tuple[str, bytes], _Hashing] = {}

    def check(self, login: Login, peer: str) -> UserRow:
        """The user, if the password is right and it may come from this address; else `LoginRefused`. `peer`: an address
        without a port; empty for a socket of this machine."""
        signed = self._known.sign(login.password)
        user = self.find(login.user)
        with self._lock:
            is_right = user is not None and self._known.knows(user, signed)
            may_try = is_right or self._back_off.may_try(peer)
        if not may_try:
            raise self._refused(login, peer, "too many failures from this address")
        if not is_right and not self._is_right(login, user, signed):
            raise self._refused(login, peer, "no such user" if user is None else "wrong password")
        assert user is not None, "nobody's password is right"
        if not may_come_from(user.name, peer, self._loopback_users):
            raise self._refused(login, peer, "this user may come from this machine only")
        return user

    def find(self, name: str) -> UserRow | None:
        with self._catalog.reading() as connection:
            return users.get(connection, name)

    def _is_right(self, login: Login, user: UserRow | None, signed: bytes) -> bool:
        """Hashed by whoever comes first; the others wait for what he finds."""
        key = (f"{user.id} {user.password_hash}" if user is not None else login.user, signed)
        with self._lock:
            hashing = self._under_way.get(key)
            is_first = hashing is None
            if hashing is None:
                hashing = self._under_way[key] = _Hashing()
            while not is_first and not hashing.is_done:
                self._lock.wait()
        if is_first:
            try:
                hashing.is_right = self._hashed(login, user, signed)
            finally:
                with self._lock:
                    hashing.is_done = True
                    del self._under_way[key]
                    self._lock.notify_all()
        return hashing.is_right

    def _hashed(self, login: Login, user: UserRow | None, signed: bytes) -> bool:
        told, hashing = (user.password_hash, user.hashing_algorithm) if user is not None else (None, "")
        if not verify(login.password, told, hashing, self._allows_md5) or user is None:
            return False
        if is_dated(user.password_hash, user.hashing_algorithm):
            user = self._renewed(user, login.password)
        with self._lock:
            self._known.learn(user, signed)
        return True

    def _renewed(self, user: UserRow, password: str) -> UserRow:
        """The same password, hashed as it should be. Who cannot write this down lets him in all the same."""
        password_hash = hashed(password, self._chance)

        def work(change: Change) -> UserRow:
            row = users.get(change.connection, user.name)
            if row != user:  # somebody has changed it in this moment, and is right
                return user
            return users.change_password(change, user.id, password_hash, Hashing.SCRYPT.value)

        try:
            return self._catalog.change(work)
        except WarrenError as error:
            _LOG.warning("a password was not hashed anew", extra={"facts": {"user": user.name, "why": error.what}})
            return user

    def _refused(self, login: Login, peer: str, why: str) -> LoginRefused:
        facts = {"user": login.user, "peer": peer, "mechanism": login.mechanism, "why": why}
        _LOG.warning("login refused", extra={"facts": facts})
        with self._lock:
            return LoginRefused(login.mechanism, self._back_off.failed(peer))
