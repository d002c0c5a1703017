"""Logins that were found right a moment ago, so that a hundred connections of one user do not pay for a hundred hashes.

    name ──▶ (hash in the catalog, HMAC of the password)         the least recently used goes first

A password is remembered as an HMAC by a key that nobody but this process has, and only in memory. One that is known
counts only as long as the catalog still has the hash it was checked against: a new password, or another user by the
same name, and it is not known any more.

Always true: what is not known is checked in full, so nobody learns from the time a refusal takes. Not thread-safe: its
owner has a lock.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict

from warren.base.chance import Random
from warren.catalog.users import UserRow

LOGINS_MAX = 1024
_KEY_IDS = 4


class KnownLogins:
    def __init__(self, chance: Random, count_max: int = LOGINS_MAX) -> None:
        self._key = b"".join(chance.id64().to_bytes(8, "big") for _ in range(_KEY_IDS))
        self._count_max = count_max
        self._known: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    def sign(self, password: str) -> bytes:
        """What stands for a password here."""
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
