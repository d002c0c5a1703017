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

    @rule(name=NAMES, told=st.sampled_from(["x", "y"]))
    def put_user(self, name: str, told: str) -> None:
        self.catalog.change(lambda change: users.put(change, name, told, "sha"))
        self.users[name] = told

    @rule(name=NAMES)
    def delete_user(self, name: str) -> None:
        if self.users.pop(name, None) is not None:
            self.catalog.change(lambda change: users.delete(change, user_id(change, name)))

    @rule(name=NAMES, vhost=VHOSTS, pattern=PATTERNS)
    def permit(self, name: str, vhost: str, pattern: str) -> None:
        if name in self.users and vhost in self.model.vhosts:

            def work(change: RowWriter) -> None:
                both = user_id(change, name), vhost_id(change, vhost)
                permissions.put(change, *both, "", "", pattern)
                topic_permissions.put_topic(change, *both, "e", "", pattern)

            self.catalog.change(work)
            self.granted[name, vhost] = self.topics[name, vhost] = pattern

    @rule(name=NAMES, vhost=VHOSTS)
    def clear(self, name: str, vhost: str) -> None:
        if name in self.users and vhost in self.model.vhosts:
            was_there = self.granted.pop((name, vhost), None) is not None
            assert was_there == self.catalog.change(
                lambda change: permissions.clear(change, user_id(change, name), vhost_id(change, vhost))
            )

    @invariant()
    def users_and_permissions_are_what_dicts_say(self) -> None:
        for told in (self.granted, self.topics):  # they go with their user and their vhost
            for name, vhost in list(told):
                if name not in self.users or vhost not in self.model.vhosts:
                    del told[name, vhost]
        with self.catalog.reading() as connection:
            by_id = {user.id: user for user in users.every(connection)}
            spaces = {vhost.id: vhost.name for vhost in vhosts.every(connection)}
            granted, topics = permissions.every(connection), topic_permissions.every_topic(connection)
        assert {user.name: user.password_hash for user in by_id.values()} == self.users
        assert {(by_id[each.user_id].name, spaces[each.vhost_id]): each.read for each in granted} == self.granted
        assert {(by_id[each.user_id].name, spaces[each.vhost_id]): each.read for each in topics} == self.topics


def user_id(change: RowWriter, name: str) -> UserId:
    found = users.get(change.connection, name)
    assert found is not None
    return found.id


def test_users_and_permissions_are_what_plain_dicts_say_whatever_is_forgotten() -> None:
    run_state_machine_as_test(UsersMachine, settings=settings(max_examples=15, stateful_step_count=30, deadline=None))
