"""Permission checks: the whole table, operation by operation, and topic permissions."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.catalog.catalog_stage import CatalogStage, home
from warren.base.errors import Refused
from warren.broker.auth.permissions import (
    AUTHORIZE,
    Access,
    AccessRefused,
    NameRole,
    Operation,
    Right,
    TopicPatterns,
    access_to,
    authorize,
    authorize_topic,
    check_patterns,
    expanded,
    may_come_from,
)
from warren.catalog import permissions, users
from warren.catalog import permissions as topic_permissions

NAMES = {
    NameRole.QUEUE: "q",
    NameRole.EXCHANGE: "e",
    NameRole.DESTINATION: "d",
    NameRole.DEAD_LETTERS: "dead",
    NameRole.ALTERNATE: "alternate",
}
EXPECTED = {  # as RabbitMQ's guide to access control has them, every role named
    Operation.QUEUE_DECLARE: {("configure", "q"), ("read", "q"), ("write", "dead")},
    Operation.QUEUE_DECLARE_PASSIVE: set(),
    Operation.QUEUE_DELETE: {("configure", "q")},
    Operation.QUEUE_BIND: {("write", "q"), ("read", "e")},
    Operation.QUEUE_UNBIND: {("write", "q"), ("read", "e")},
    Operation.QUEUE_PURGE: {("read", "q")},
    Operation.EXCHANGE_DECLARE: {("configure", "e"), ("read", "e"), ("write", "alternate")},
    Operation.EXCHANGE_DECLARE_PASSIVE: set(),
    Operation.EXCHANGE_DELETE: {("configure", "e")},
    Operation.EXCHANGE_BIND: {("write", "d"), ("read", "e")},
    Operation.EXCHANGE_UNBIND: {("write", "d"), ("read", "e")},
    Operation.BASIC_PUBLISH: {("write", "e")},
    Operation.BASIC_GET: {("read", "q")},
    Operation.BASIC_CONSUME: {("read", "q")},
}
PAIRS = sorted({(right.value, name) for right in Right for name in NAMES.values()})


def access(configure: str = "", write: str = "", read: str = "", **topics: TopicPatterns) -> Access:
    return Access("ann", "/", configure, write, read, topics)


def granting(pairs: set[tuple[str, str]]) -> Access:
    """Exactly these names, each for its right."""
    by_right = {right.value: [name for right_name, name in pairs if right_name == right.value] for right in Right}
    patterns = {right: f"^({'|'.join(names)})$" if names else "" for right, names in by_right.items()}
    return access(patterns["configure"], patterns["write"], patterns["read"])


def is_permitted(user_access: Access, operation: Operation, names: dict[NameRole, str] | None = None) -> bool:
    try:
        authorize(user_access, operation, NAMES if names is None else names)
    except AccessRefused:
        return False
    return True


@pytest.mark.parametrize("operation", Operation)
def test_every_operation_needs_exactly_its_listed_rights(operation: Operation) -> None:
    needed = EXPECTED[operation]
    assert is_permitted(granting(needed), operation)
    for size in range(len(needed)):
        for some in combinations(sorted(needed), size):
            assert not is_permitted(granting(set(some)), operation)
    assert is_permitted(granting(set(PAIRS) - needed), operation) is (not needed)


def test_every_operation_is_in_the_table() -> None:
    assert set(AUTHORIZE) == set(Operation) == set(EXPECTED)


def test_a_dead_letter_or_alternate_exchange_is_checked_only_if_there_is_one() -> None:
    assert is_permitted(access(configure="^q$"), Operation.QUEUE_DECLARE, {NameRole.QUEUE: "q"})
    assert is_permitted(access(configure="^e$"), Operation.EXCHANGE_DECLARE, {NameRole.EXCHANGE: "e"})


def test_the_default_exchange_is_checked_by_the_name_that_rabbitmq_gives_it() -> None:
    default = {NameRole.EXCHANGE: ""}
    assert is_permitted(access(write=r"^amq\.default$"), Operation.BASIC_PUBLISH, default)
    assert not is_permitted(access(write="^$"), Operation.BASIC_PUBLISH, default)
    assert not is_permitted(access(write=""), Operation.BASIC_PUBLISH, default)


def test_a_refusal_names_the_right_the_thing_and_the_user() -> None:
    text = "write access to exchange 'dead' in vhost '/' refused for user 'ann'"
    with pytest.raises(AccessRefused, match=f"^{text}$"):
        authorize(access(".*", "^q", ".*"), Operation.QUEUE_DECLARE, NAMES)


def test_a_pattern_that_cannot_be_used_permits_nothing() -> None:
    for pattern in ("(", "(a+)+", "x" * 5000):
        assert not is_permitted(access(read=pattern), Operation.BASIC_GET, {NameRole.QUEUE: "aaa"})
        with pytest.raises(Refused, match="pattern"):
            check_patterns(".*", pattern)
    check_patterns("", ".*", r"^{username}\.{client_id}$")


def test_keys_are_checked_only_for_exchanges_with_topic_permissions() -> None:
    user_access = access(topic=TopicPatterns(write="^a", read=""))
    authorize_topic(user_access, Right.WRITE, "topic", "a.b")
    authorize_topic(user_access, Right.READ, "elsewhere", "x")
    with pytest.raises(AccessRefused, match="write access to topic 'b' in exchange 'topic' in vhost '/' refused"):
        authorize_topic(user_access, Right.WRITE, "topic", "b")
    with pytest.raises(AccessRefused, match="read access to topic 'a'"):
        authorize_topic(user_access, Right.READ, "topic", "a")


def test_variables_of_a_topic_pattern_are_text_and_never_a_pattern() -> None:
    user_access = access(topic=TopicPatterns(write=r"^{username}\.{vhost}\.{client_id}$", read=""))
    authorize_topic(user_access, Right.WRITE, "topic", "ann./.7", client_id="7")
    for client_id, key in ((".*", "ann./.7"), ("", "ann./."), ("7", "bob./.7")):
        with pytest.raises(AccessRefused):
            authorize_topic(user_access, Right.WRITE, "topic", key, client_id)
    assert expanded("a{2}{other}", {"username": "x"}) == "a{2}{other}"


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", ""])
def test_guest_comes_from_this_machine(peer: str) -> None:
    assert may_come_from("guest", peer)


@pytest.mark.parametrize("peer", ["10.0.0.1", "::", "0.0.0.0", "fe80::1%eth0", "::ffff:10.0.0.1", "localhost", "1"])
def test_guest_does_not_come_from_elsewhere_and_others_do(peer: str) -> None:
    assert not may_come_from("guest", peer)
    assert may_come_from("ann", peer)
    assert may_come_from("guest", peer, loopback_users=())


def test_access_is_what_the_catalog_permits_and_users_without_any_are_refused() -> None:
    stage = CatalogStage()
    catalog = stage.begin()
    here, ann = home(catalog), catalog.change(lambda writer: users.put(writer, "ann", "", ""))
    with pytest.raises(AccessRefused, match="access to vhost '/' refused for user 'ann'"):
        access_to(catalog, ann, here)
    catalog.change(lambda writer: permissions.put(writer, ann.id, here.id, "c", "w", "r"))
    catalog.change(lambda writer: topic_permissions.put_topic(writer, ann.id, here.id, "topic", "tw", "tr"))
    assert access_to(catalog, ann, here) == access("c", "w", "r", topic=TopicPatterns("tw", "tr"))
    stage.stop()
