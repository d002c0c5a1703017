"""Passwords: hashing, and verification in constant time.

    warren_password_hashing_scrypt    scrypt$ln=14,r=8,p=1$<salt, base64>$<hash, base64>     new ones, by default
    rabbit_password_hashing_sha256    base64( salt, 4 bytes | sha256(salt | password) )      as RabbitMQ makes them
    rabbit_password_hashing_sha512    the same with sha512                                   imported only
    rabbit_password_hashing_md5       the same with md5                                      imported only

`password_hashing` (server/settings) decides how new passwords are hashed: by scrypt, or by SHA-256 so that RabbitMQ can
read them. Hashes that are imported are kept as they are. With `password_rehash` a successful login replaces a hash that
`is_dated`. A scrypt hash contains its cost: 16 MiB and some 50 ms, so that a thousand clients can reconnect at once.

Invariants
* An empty password, an empty hash or a hash that is not understood never verifies.
* A password that is too long is never hashed. The cost that a hash asks for is checked before memory is allocated.
* Timing does not reveal whether a user exists: every failure takes one scrypt, whatever failed.

Delays after failures: server/authentication.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from warren.base.environment import Random
from warren.base.errors import Refused

PASSWORD_BYTES_MAX = 1024
SALT_BYTES = 16
HASH_BYTES = 32
_RABBIT_SALT_BYTES = 4
_MEMORY_BYTES_MAX = 64 << 20  # limit for the cost in a hash
_WORK_MAX = 1 << 20  # N × r × p; eight times the usual cost
_HASH_CHARACTERS_MAX = 512
_SCRYPT = re.compile(r"scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,3})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)", re.ASCII)


class Hashing(Enum):
    """The names are stored in the catalog, and used by RabbitMQ's definitions."""

    SCRYPT = "warren_password_hashing_scrypt"
    SHA256 = "rabbit_password_hashing_sha256"
    SHA512 = "rabbit_password_hashing_sha512"
    MD5 = "rabbit_password_hashing_md5"


NEW_PASSWORDS = {"scrypt": Hashing.SCRYPT, "sha256": Hashing.SHA256}  # the values of `password_hashing`


_DIGESTS: dict[Hashing, Callable[[bytes], bytes]] = {
    Hashing.SHA256: lambda raw: hashlib.sha256(raw).digest(),
    Hashing.SHA512: lambda raw: hashlib.sha512(raw).digest(),
    Hashing.MD5: lambda raw: hashlib.md5(raw, usedforsecurity=False).digest(),
}


@dataclass(frozen=True, slots=True)
class ScryptCost:
    log2_n: int = 14
    r: int = 8
    p: int = 1

    @property
    def is_acceptable(self) -> bool:
        has_work = self.log2_n >= 1 and self.r >= 1 and self.p >= 1
        return has_work and self.memory_bytes <= _MEMORY_BYTES_MAX and (self.r * self.p << self.log2_n) <= _WORK_MAX

    @property
    def memory_bytes(self) -> int:
        return 128 * self.r * ((1 << self.log2_n) + self.p + 2)

    def digest(self, password: bytes, salt: bytes) -> bytes:
        limit = self.memory_bytes + (1 << 20)
        cost = {"n": 1 << self.log2_n, "r": self.r, "p": self.p, "maxmem": limit}
        return hashlib.scrypt(password, salt=salt, dklen=HASH_BYTES, **cost)


USUAL_COST = ScryptCost()


def hashed(password: str, rng: Random, cost: ScryptCost = USUAL_COST, hashing: Hashing = Hashing.SCRYPT) -> str:
    """A new hash: by scrypt, or salted as RabbitMQ does it."""
    raw = _checked(password)
    salt = b"".join(rng.id64().to_bytes(8, "big") for _ in range(SALT_BYTES // 8))
    if hashing is not Hashing.SCRYPT:
        salt = salt[:_RABBIT_SALT_BYTES]
        return b64encode(salt + _DIGESTS[hashing](salt + raw)).decode()
    parts = (b64encode(part).decode() for part in (salt, cost.digest(raw, salt)))
    return f"scrypt$ln={cost.log2_n},r={cost.r},p={cost.p}${'$'.join(parts)}"


def checked_hashing(name: str) -> Hashing:
    """The algorithm of this name; SHA-256 for an empty name, as in RabbitMQ."""
    try:
        return Hashing(name or Hashing.SHA256.value)
    except ValueError as error:
        known = ", ".join(each.value for each in Hashing)
        raise Refused(f"there is no password hashing {name[:60]!r}", f"there are {known}") from error


def is_readable(password_hash: str, hashing: Hashing) -> bool:
    """Whether it has the form of a hash of this algorithm. An empty one has: no password is accepted then."""
    if not password_hash or len(password_hash) > _HASH_CHARACTERS_MAX:
        return not password_hash
    if hashing is Hashing.SCRYPT:
        return _cost_of(password_hash) is not None
    return bool(_decoded(password_hash))


def verify(password: str, password_hash: str | None, hashing: str) -> bool:
    """Whether this is the password. False without a hash (no such user)."""
    try:
        raw = _checked(password)
    except Refused:
        return False
    if hashing == Hashing.SCRYPT.value and password_hash and (cost := _cost_of(password_hash)):
        return _verify_scrypt(raw, password_hash, cost)
    is_right = bool(password_hash) and _verify_salted(raw, password_hash or "", hashing)
    if not is_right:
        USUAL_COST.digest(raw, bytes(SALT_BYTES))
    return is_right


def is_dated(password_hash: str, hashing: str, wanted: Hashing, cost: ScryptCost = USUAL_COST) -> bool:
    """Whether a new hash of the same password would have another algorithm or cost."""
    return hashing != wanted.value or (wanted is Hashing.SCRYPT and _cost_of(password_hash) != cost)


def _checked(password: str) -> bytes:
    raw = password.encode(errors="surrogatepass")
    if not 0 < len(raw) <= PASSWORD_BYTES_MAX:
        raise Refused(f"a password cannot have {len(raw)} bytes", f"it has 1 … {PASSWORD_BYTES_MAX}")
    return raw


def _verify_scrypt(password: bytes, password_hash: str, cost: ScryptCost) -> bool:
    salt, expected = (_decoded(part) for part in password_hash.split("$")[-2:])
    return hmac.compare_digest(cost.digest(password, salt), expected)


def _cost_of(password_hash: str) -> ScryptCost | None:
    match = _SCRYPT.fullmatch(password_hash)
    if match is None or len(password_hash) > _HASH_CHARACTERS_MAX:
        return None
    cost = ScryptCost(int(match[1]), int(match[2]), int(match[3]))
    return cost if cost.is_acceptable else None


def _verify_salted(password: bytes, password_hash: str, hashing: str) -> bool:
    try:
        digest = _DIGESTS.get(checked_hashing(hashing))
    except Refused:
        return False
    if digest is None or len(password_hash) > _HASH_CHARACTERS_MAX:
        return False
    expected = _decoded(password_hash)
    salt = expected[:_RABBIT_SALT_BYTES]
    return hmac.compare_digest(salt + digest(salt + password), expected)


def _decoded(text: str) -> bytes:
    """Empty if the text is not base64."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""
