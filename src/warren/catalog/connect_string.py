"""Connect strings of SQL databases: which database one names, and how to speak of it without its password.

    sqlite:////var/lib/warren/shop.sqlite        a file
    postgresql://ann:secret@db.example/shop      spoken of as postgresql://ann@db.example/shop
    postgresql://ann@/shop?host=/run/postgres    a Unix socket

Always true: nothing that is said of a connect string, refusals of one that cannot be read among them, has a part of it
in which a password may stand. What follows the question mark may hold one, so of that only the host is told.
"""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from warren.base.errors import Misuse

SQLITE = "sqlite"
POSTGRESQL = "postgresql"
_DRIVERS = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "postgresql+psycopg": POSTGRESQL, "postgres": POSTGRESQL}
_LIKE = "like sqlite:////var/lib/warren/shop.sqlite or postgresql://user@host/shop"


def is_connect_string(text: str) -> bool:
    return "://" in text


def parsed(connect: str) -> URL:
    """With the name of the database system as its driver; an empty string is SQLite, and names no file."""
    if not connect:
        return URL.create(SQLITE)
    try:
        url = make_url(connect)
    except (ArgumentError, ValueError):
        raise Misuse("the connect string of the catalog cannot be read", _LIKE) from None  # it may have the password
    if url.drivername not in _DRIVERS:
        raise Misuse(f"the catalog cannot be in {url.drivername!r}: there is SQLite, and PostgreSQL by psycopg", _LIKE)
    return url.set(drivername=_DRIVERS[url.drivername])


def shown(url: URL) -> str:
    """For people."""
    host = url.host or str(url.query.get("host", ""))
    port = f":{url.port}" if url.port else ""
    user = f"{url.username}@" if url.username else ""
    return f"{url.drivername}://{user}{host}{port}/{url.database or ''}"
