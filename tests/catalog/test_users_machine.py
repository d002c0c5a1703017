"""Users and what they are permitted, against plain dicts, while vhosts come and go and SQL and the disk forget."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from tests.catalog.test_catalog_machine import NAMES, VHOSTS, CatalogMachine, vhost_id
from warren.base.ids import UserId
from warren.catalog import permissions, users, vhosts
from warren.catalog import permissions as topic_permissions
from warren.catalog.rows import RowWriter

PATTERNS = st.sampled_from(["", ".*"])


class UsersMachine(CatalogMachine):
    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, str] = {}  # hash
        self.granted: dict[tuple[str, str], str] = {}  # user, vhost: what it may read
        self.topics: dict[tuple[str, str], str] = {}

    @rule(name=NAMES, password_hash=st.sampled_from(["x", "y"]))
    def put_user(self, name: str, password_hash: str) -> None:
        self.catalog.change(lambda writer: users.put(writer, name, password_hash, "sha"))
        self.users[name] = password_hash

    @rule(name=NAMES)
    def delete_user(self, name: str) -> None:
        if self.users.pop(name, None) is not None:
            self.catalog.change(lambda writer: users.delete(writer, user_id(writer, name)))

    @rule(name=NAMES, vhost=VHOSTS, pattern=PATTERNS)
    def permit(self, name: str, vhost: str, pattern: str) -> None:
        if name in self.users and vhost in self.model.vhosts:

            def work(writer: RowWriter) -> None:
                both = user_id(writer, name), vhost_id(writer, vhost)
                permissions.put(writer, *both, "", "", pattern)
                topic_permissions.put_topic(writer, *both, "e", "", pattern)

            self.catalog.change(work)
            self.granted[name, vhost] = self.topics[name, vhost] = pattern

    @rule(name=NAMES, vhost=VHOSTS)
    def clear(self, name: str, vhost: str) -> None:
        if name in self.users and vhost in self.model.vhosts:
            was_there = self.granted.pop((name, vhost), None) is not None
            assert was_there == self.catalog.change(
                lambda writer: permissions.clear(writer, user_id(writer, name), vhost_id(writer, vhost))
            )

    @invariant()
    def users_and_permissions_equal_the_dicts(self) -> None:
        for rows in (self.granted, self.topics):  # deleted with their user and their vhost
            for name, vhost in list(rows):
                if name not in self.users or vhost not in self.model.vhosts:
                    del rows[name, vhost]
        with self.catalog.reading() as connection:
            by_id = {user.id: user for user in users.every(connection)}
            spaces = {vhost.id: vhost.name for vhost in vhosts.every(connection)}
            granted, topics = permissions.every(connection), topic_permissions.every_topic(connection)
        assert {user.name: user.password_hash for user in by_id.values()} == self.users
        assert {(by_id[each.user_id].name, spaces[each.vhost_id]): each.read for each in granted} == self.granted
        assert {(by_id[each.user_id].name, spaces[each.vhost_id]): each.read for each in topics} == self.topics


def user_id(writer: RowWriter, name: str) -> UserId:
    found = users.get(writer.connection, name)
    assert found is not None
    return found.id


def test_users_and_permissions_equal_plain_dicts_after_any_loss() -> None:
    run_state_machine_as_test(UsersMachine, settings=settings(max_examples=15, stateful_step_count=30, deadline=None))
