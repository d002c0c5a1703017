"""Authentication: SASL responses are decoded, and logins are checked against the users of the catalog.

    PLAIN       [authorization id] 0 name 0 password             bytes, as in RFC 4616
    AMQPLAIN    a table without its size: LOGIN, PASSWORD        AMQP's own, used by old clients
    ANONYMOUS   anything                                         the user `anonymous_login_user`; off if that is empty
    EXTERNAL    anything                                         the user that the client's certificate names (tls.py)

    Login ──▶ row of the user ──▶ verified recently? ──▶ hash it ──▶ address allowed? ──▶ User
                                                          └─ with `password_rehash`: replaced by a newer hash

`read_login`: a response that is too long or malformed is an error of the client. An authorization id must be the name
itself. A mechanism without a password names a user, who must exist and be allowed to come from the address (`trust`).

`UserAuthentication` blocks (SQL, and a hash of about 50 ms), so servers call it in their own threads. Connections with
the same login at the same moment share one hash.

`KnownLogins` caches verified logins, so that a hundred connections of one user do not cost a hundred hashes. An entry
has an HMAC of the password, with a key of this process, in memory only; the least recently used entry is removed first.
It is valid while the catalog has the hash that it was verified against: not after a change of the password, or for
another user with the same name.

`BackOff` delays the answer to failed logins, and limits hashes per address:

    failures of one address      answered after             hashed
    1, 2, 3, 4 …                 1, 2, 3, 3 s at most       yes
    more than `FREE_FAILURES`    3 s                        one login per second, the others are refused without a hash

Failures expire a minute after the last one. An IPv6 address counts by its network (64 bits), since one client may have
all of them. The table is bounded: the address that failed least recently is removed first. Only refusals are delayed,
and cached logins are not limited: other users of the same address can log in, though a new one may have to retry.

`LoginAttempts` counts accepted and refused logins by protocol, in memory, for the HTTP API. They are not counted by
address and user: an attacker could use any number of them.

Invariants
* All refusals have the same answer and the same cost: an unknown user costs a hash as well, so the time of a refusal
  reveals nothing. Only the log has the reason.
* The row is read for every login, so a changed password or a deleted user counts at once.
* `LoginRefused.delay_seconds` is the delay of the answer; the caller waits in its loop, and no thread does.
* `KnownLogins` and `BackOff` are not thread-safe: their owner has a lock.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from warren.amqp.errors import PeerError, ReplyCode, reply_text
from warren.amqp.types import read_table
from warren.base.environment import Clock, Random
from warren.base.errors import Refused, WarrenError
from warren.broker.auth.passwords import NEW_PASSWORDS, PASSWORD_BYTES_MAX, hashed, is_dated, verify
from warren.broker.auth.permissions import may_come_from
from warren.catalog import users
from warren.catalog.catalog import Catalog
from warren.catalog.rows import NAME_BYTES_MAX, RowWriter
from warren.catalog.users import UserRow
from warren.files.environment import Environment
from warren.server.event_lines import CONNECTION_LOG
from warren.server.settings import ServerSettings

RESPONSE_BYTES_MAX = 4096
HTTP_BASIC = "HTTP"  # `Login.mechanism` of HTTP; the others are SASL


@dataclass(frozen=True, slots=True)
class Login:
    """Not verified yet. The password is not in `repr`, so that it is never logged."""

    user: str
    password: str = field(repr=False)
    mechanism: str = "PLAIN"


def read_login(mechanism: str, response: bytes, offered: Collection[str]) -> Login:
    """The login in `connection.start-ok`. Raises `PeerError` if it is malformed, or the mechanism was not offered."""
    read = _READERS.get(mechanism)
    if read is None or mechanism not in offered:
        raise PeerError(ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{mechanism[:40]}'")
    if len(response) > RESPONSE_BYTES_MAX:
        raise _bad(mechanism, f"has {len(response)} bytes, at most {RESPONSE_BYTES_MAX} are read")
    user, password = read(response)
    return Login(
        _text(user, "name", NAME_BYTES_MAX, mechanism),
        _text(password, "password", PASSWORD_BYTES_MAX, mechanism),
        mechanism,
    )


def _read_plain(response: bytes) -> tuple[bytes, bytes]:
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise _bad("PLAIN", "is not `0 name 0 password`")
    authorization_id, user, password = parts
    if authorization_id not in (b"", user):
        raise _bad("PLAIN", "asks to act as another user")
    return user, password


def _read_amqplain(response: bytes) -> tuple[bytes, bytes]:
    sized = len(response).to_bytes(4, "big") + response
    table, _ = read_table(sized, 0, len(sized))
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str | bytes) or not isinstance(password, str | bytes):
        raise _bad("AMQPLAIN", "has no LOGIN or no PASSWORD, as texts")
    return _raw(user), _raw(password)


_READERS: dict[str, Callable[[bytes], tuple[bytes, bytes]]] = {"PLAIN": _read_plain, "AMQPLAIN": _read_amqplain}
ANONYMOUS, EXTERNAL = "ANONYMOUS", "EXTERNAL"
MECHANISMS = (*_READERS, ANONYMOUS, EXTERNAL)  # all supported ones


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _text(raw: bytes, what: str, bytes_max: int, mechanism: str) -> str:
    if len(raw) > bytes_max:
        raise _bad(mechanism, f"has a {what} of {len(raw)} bytes, at most {bytes_max} are read")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _bad(mechanism, f"has a {what} that is not UTF-8") from error


def _bad(mechanism: str, reason: str) -> PeerError:
    return PeerError(ReplyCode.SYNTAX_ERROR, f"the {mechanism} response {reason}")


ADDRESSES_MAX = 4096
FREE_FAILURES = 10
DELAY_SECONDS_MAX = 3.0  # kombu, and so Celery, waits 5 s for a connection: the refusal must arrive before
_FORGOTTEN_NS = 60_000_000_000
_PACE_NS = 1_000_000_000
_NETWORK_BITS = 64


@dataclass(slots=True)
class _Failures:
    count: int
    last_ns: int
    last_checked_ns: int


class BackOff:
    def __init__(self, clock: Clock, delay_seconds: float, addresses_max: int = ADDRESSES_MAX) -> None:
        self._clock = clock
        self._delay_seconds = delay_seconds
        self._addresses_max = addresses_max
        self._failed: OrderedDict[str, _Failures] = OrderedDict()

    def may_try(self, peer: str) -> bool:
        """Whether a login from this address may cost a hash now; always for a local socket, which has no address."""
        now, found = self._clock.monotonic_ns(), self._failed.get(network_of(peer))
        if not peer or found is None or found.count <= FREE_FAILURES or now - found.last_ns > _FORGOTTEN_NS:
            return True
        if now - found.last_checked_ns < _PACE_NS:
            return False
        found.last_checked_ns = now
        return True

    def failed(self, peer: str) -> float:
        """Note a failure; returns the delay of the answer in seconds."""
        now, network = self._clock.monotonic_ns(), network_of(peer)
        found = self._failed.get(network)
        if found is None or now - found.last_ns > _FORGOTTEN_NS:
            found = self._failed[network] = _Failures(0, now, now)
        found.count += 1
        found.last_ns = now
        self._failed.move_to_end(network)
        if len(self._failed) > self._addresses_max:
            self._failed.popitem(last=False)
        doublings = min(found.count - 1, 10)
        return min(self._delay_seconds * (1 << doublings), max(DELAY_SECONDS_MAX, self._delay_seconds))

    def __len__(self) -> int:
        return len(self._failed)


def network_of(peer: str) -> str:
    try:
        address: IPv4Address | IPv6Address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return f"{int(address) >> _NETWORK_BITS:x}/64"
    return str(address)


LOGINS_MAX = 1024
_KEY_IDS = 4


class KnownLogins:
    def __init__(self, rng: Random, count_max: int = LOGINS_MAX) -> None:
        self._key = b"".join(rng.id64().to_bytes(8, "big") for _ in range(_KEY_IDS))
        self._count_max = count_max
        self._known: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    def sign(self, password: str) -> bytes:
        """HMAC of a password."""
        return hmac.digest(self._key, password.encode(errors="surrogatepass"), hashlib.sha256)

    def knows(self, user: UserRow, signed: bytes) -> bool:
        found = self._known.get(user.name)
        if found is None or found[0] != _proof(user) or not hmac.compare_digest(found[1], signed):
            return False
        self._known.move_to_end(user.name)
        return True

    def learn(self, user: UserRow, signed: bytes) -> None:
        self._known[user.name] = _proof(user), signed
        self._known.move_to_end(user.name)
        if len(self._known) > self._count_max:
            self._known.popitem(last=False)


def _proof(user: UserRow) -> str:
    return f"{user.id} {user.hashing_algorithm} {user.password_hash}"


_LOG = logging.getLogger(__name__)


class LoginRefused(Refused):
    """AMQP: 403 with `text`, sent after `delay_seconds`."""

    def __init__(self, mechanism: str, delay_seconds: float) -> None:
        way = f"Login was refused using authentication mechanism {mechanism}"
        super().__init__(f"{way}. For details see the broker logfile.")
        self.delay_seconds = delay_seconds

    @property
    def text(self) -> str:
        return reply_text(ReplyCode.ACCESS_REFUSED, self.what)


@dataclass(slots=True)
class _Hashing:
    """A login that is being hashed by one thread."""

    is_done: bool = False
    is_right: bool = False


class LoginAttempts(NamedTuple):
    """Logins of one protocol since the start, or since they were reset."""

    protocol: str  # amqp091, http
    succeeded: int = 0
    failed: int = 0


class UserAuthentication:
    """Thread-safe."""

    def __init__(self, catalog: Catalog, environment: Environment, settings: ServerSettings) -> None:
        self._catalog = catalog
        self._rng = environment.rng
        self._loopback_users = frozenset(settings.loopback_users)
        self._hashing = NEW_PASSWORDS[settings.password_hashing]
        self._rehashes = settings.password_rehash
        self._lock = environment.threads.condition()  # of the following attributes
        self._known = KnownLogins(environment.rng)
        self._back_off = BackOff(environment.clock, settings.login_delay_seconds)
        self._under_way: dict[tuple[str, bytes], _Hashing] = {}
        self._attempts: dict[str, LoginAttempts] = {}

    def attempts(self) -> list[LoginAttempts]:
        """Of each protocol that was used."""
        with self._lock:
            return list(self._attempts.values())

    def reset_attempts(self) -> None:
        with self._lock:
            self._attempts.clear()

    def check(self, login: Login, peer: str) -> UserRow:
        """The user, if the password is right and the address is allowed; else raises `LoginRefused`. `peer`: an address
        without a port; empty for a local socket."""
        is_accepted = False
        try:
            user = self._check(login, peer)
            is_accepted = True
            return user
        finally:
            self._count(login, is_accepted)

    def _count(self, login: Login, is_accepted: bool) -> None:
        protocol = "http" if login.mechanism == HTTP_BASIC else "amqp091"
        with self._lock:
            _, succeeded, failed = self._attempts.get(protocol, LoginAttempts(protocol))
            self._attempts[protocol] = LoginAttempts(protocol, succeeded + is_accepted, failed + (not is_accepted))

    def _check(self, login: Login, peer: str) -> UserRow:
        signed = self._known.sign(login.password)
        user = self.find(login.user)
        with self._lock:
            is_right = user is not None and self._known.knows(user, signed)
            may_try = is_right or self._back_off.may_try(peer)
        if not may_try:
            raise self._refused(login, peer, "too many failures from this address")
        if not is_right and not self._is_right(login, user, signed):
            raise self._refused(login, peer, "no such user" if user is None else "wrong password")
        assert user is not None, "an unknown user has no right password"
        if not may_come_from(user.name, peer, self._loopback_users):
            raise self._refused(login, peer, "this user may log in from this machine only")
        return user

    def trust(self, name: str, mechanism: str, peer: str) -> UserRow:
        """The user of this name, without a password; else raises `LoginRefused`."""
        login = Login(name, "", mechanism)
        user = self.find(name) if name else None
        if user is None:
            raise self._refused(login, peer, "no such user")
        if not may_come_from(user.name, peer, self._loopback_users):
            raise self._refused(login, peer, "this user may log in from this machine only")
        return user

    def find(self, name: str) -> UserRow | None:
        with self._catalog.reading() as connection:
            return users.get(connection, name)

    def _is_right(self, login: Login, user: UserRow | None, signed: bytes) -> bool:
        """The first thread with this login hashes it; the others wait for its result."""
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
        password_hash, hashing = (user.password_hash, user.hashing_algorithm) if user is not None else (None, "")
        if not verify(login.password, password_hash, hashing) or user is None:
            return False
        if self._rehashes and is_dated(user.password_hash, user.hashing_algorithm, self._hashing):
            user = self._renewed(user, login.password)
        with self._lock:
            self._known.learn(user, signed)
        return True

    def _renewed(self, user: UserRow, password: str) -> UserRow:
        """Store the same password with the current hash. If that fails, the login succeeds all the same."""
        password_hash = hashed(password, self._rng, hashing=self._hashing)

        def work(change: RowWriter) -> UserRow:
            row = users.get(change.connection, user.name)
            if row != user:  # changed by another thread meanwhile: that change stays
                return user
            return users.change_password(change, user.id, password_hash, self._hashing.value)

        try:
            return self._catalog.change(work)
        except WarrenError as error:
            _LOG.warning("password rehash failed", extra={"facts": {"user": user.name, "why": error.what}})
            return user

    def _refused(self, login: Login, peer: str, reason: str) -> LoginRefused:
        facts = {"user": login.user, "peer": peer, "mechanism": login.mechanism, "why": reason}
        CONNECTION_LOG.error("login refused", extra={"facts": facts})
        with self._lock:
            return LoginRefused(login.mechanism, self._back_off.failed(peer))
