"""Password hashes are left out of entries that leave the store, and nothing else is."""

from __future__ import annotations

import pytest

from tests.records.samples import Row, columns_of, rows_of
from warren.catalog.rows import CATALOG, RowKind, encode, key_of, without_credentials

KEY = key_of(RowKind.USER, 7)
USER = Row(storage=CATALOG, key=KEY, value=encode({"name": "ada", "password_hash": "c2VjcmV0", "tags": ["x"]}))
SHOWN = Row(storage=CATALOG, key=KEY, value=encode({"name": "ada", "password_hash": "", "tags": ["x"]}))


@pytest.mark.parametrize(
    "others",
    [
        [],
        [Row(storage=CATALOG, key=key_of(RowKind.VHOST, 1), value=encode({"name": "password"}))],
        [Row(storage=CATALOG + 1, key=KEY, value=USER.value), Row(storage=1 << 63, key=b"U", value=b"password")],
        [Row(kind=2, storage=CATALOG, key=KEY)],
    ],
)
def test_a_row_of_a_user_is_shown_with_an_empty_hash_and_all_others_as_they_are(others: list[Row]) -> None:
    for rows, shown in (([USER, *others], [SHOWN, *others]), ([*others, USER], [*others, SHOWN])):
        assert rows_of(without_credentials(columns_of(rows))) == shown


@pytest.mark.parametrize("value", [b"\x02" + USER.value[1:], b'\x01{"password_hash', b'\x01{"old_password":"x"}'])
def test_a_row_that_cannot_be_read_and_may_have_a_hash_is_shown_empty(value: bytes) -> None:
    [row] = rows_of(without_credentials(columns_of([Row(storage=CATALOG, key=KEY, value=value)])))
    assert row.value == b""


def test_entries_of_other_storages_are_not_copied() -> None:
    columns = columns_of([Row(storage=storage, key=KEY, value=USER.value) for storage in (2, 3, 4)])
    assert without_credentials(columns) is columns
