"""The first start: a vhost, and a user who may do everything in it, so that a client can come in.

Only where there is no user at all. Whoever deletes guest does not find it again after the next start, as long as any
other user is left; and a password that was changed stays changed, whatever the configuration says.
"""

from __future__ import annotations

import logging
from functools import partial

from warren.app.configuration.configuration import FirstUser
from warren.base.chance import Random
from warren.broker.passwords import Hashing, hashed
from warren.broker.permissions import check_patterns
from warren.catalog import permissions, users, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.change import Change

_LOG = logging.getLogger(__name__)


def make_first_user(catalog: Catalog, chance: Random, first: FirstUser) -> bool:
    """Whether there was none."""
    with catalog.reading() as connection:
        if users.every(connection):
            return False
    check_patterns(first.configure, first.write, first.read)
    password_hash = hashed(first.password, chance)
    catalog.change(partial(_made, first=first, password_hash=password_hash))
    _LOG.info("made the first user", extra={"facts": {"user": first.name, "vhost": first.vhost}})
    return True


def _made(change: Change, first: FirstUser, password_hash: str) -> None:
    vhost = vhosts.declare(change, first.vhost)
    user = users.put(change, first.name, password_hash, Hashing.SCRYPT.value, first.tags)
    permissions.put(change, user.id, vhost.id, first.configure, first.write, first.read)
