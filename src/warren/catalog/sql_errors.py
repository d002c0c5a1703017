"""What SQL says when it cannot, in the words of the house.

SQLAlchemy wraps what the driver raises, and drivers tell little apart: SQLite's text is what there is to go by. An
`IntegrityError` passes: whoever wrote the row knows what it means.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError

from warren.base.errors import Damage, DiskFailure, Locked, OutOfRoom, WarrenError

_DAMAGED = ("not a database", "malformed", "file is encrypted")


class SqlDamage(Damage):
    """The SQL database is not what it was. It is derived: it can be set aside and made again."""


@contextmanager
def told_plainly(where: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        raise _told(where, error) from error


def _told(where: str, error: DBAPIError) -> WarrenError:
    text = str(error.orig)
    if any(sign in text for sign in _DAMAGED):
        return SqlDamage(f"the SQL catalog is damaged: {text}", where, 0, "it is made again from the log")
    if "full" in text:
        return OutOfRoom(
            f"the SQL catalog {where} has no room: {text}", "make room; what is in the log is applied then"
        )
    if "locked" in text:
        return Locked(f"the SQL catalog {where} is held by somebody else: {text}", "stop whoever has it open")
    return DiskFailure(f"the SQL catalog {where} cannot go on: {text}", "see to it; what is in the log is applied then")
