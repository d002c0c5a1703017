"""Which database a connect string names, and how it is shown."""

from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.catalog.sql import is_connect_string, parsed, shown


@pytest.mark.parametrize(
    ("connect", "driver", "database"),
    [
        ("", "sqlite", None),
        ("sqlite:////var/lib/x.db", "sqlite", "/var/lib/x.db"),
        ("postgresql://host", "postgresql", None),
        ("postgresql://host/shop", "postgresql", "shop"),
        ("postgres://host/shop", "postgresql", "shop"),
        ("postgresql+psycopg://host/shop", "postgresql", "shop"),
    ],
)
def test_a_connect_string_names_a_system_and_perhaps_a_database(
    connect: str, driver: str, database: str | None
) -> None:
    """OP-01"""
    url = parsed(connect)
    assert (url.drivername, url.database) == (driver, database)


@pytest.mark.parametrize(
    "connect",
    ["secret", "::secret::", "mysql://ann:secret@h/x", "postgresql+asyncpg://ann:secret@h/x", "a://b:secret@c:d"],
)
def test_one_that_cannot_be_used_is_misuse_and_no_part_of_it_is_shown(connect: str) -> None:
    with pytest.raises(Misuse) as caught:
        parsed(connect)
    assert "secret" not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    assert "postgresql://" in caught.value.hint


@pytest.mark.parametrize(
    ("connect", "shown_as"),
    [
        ("postgresql://ann:secret@host:7/shop", "postgresql://ann@host:7/shop"),
        ("postgresql://host/shop?user=ann&password=secret&sslpassword=secret", "postgresql://host/shop"),
        ("postgresql://ann:secret@/shop?host=/run/postgresql", "postgresql://ann@/run/postgresql/shop"),
        ("sqlite:////var/lib/x.db", "sqlite:////var/lib/x.db"),
    ],
)
def test_messages_leave_out_the_password(connect: str, shown_as: str) -> None:
    assert shown(parsed(connect)) == shown_as


def test_a_name_is_no_connect_string() -> None:
    assert is_connect_string("postgresql://host")
    assert not is_connect_string("shop")
