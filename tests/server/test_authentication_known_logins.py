"""The cache of verified logins: valid until the user changes, and bounded."""

from __future__ import annotations

from dataclasses import replace

from warren.base.ids import UserId
from warren.catalog.users import UserRow
from warren.server.authentication import KnownLogins
from warren.testing.fakes import SeededRandom

ANN = UserRow(UserId(7), "ann", "hash", "algorithm")


def test_a_login_is_known_after_it_was_learnt() -> None:
    known = KnownLogins(SeededRandom(1))
    signed = known.sign("secret")
    assert not known.knows(ANN, signed)
    known.learn(ANN, signed)
    assert known.knows(ANN, known.sign("secret"))
    assert not known.knows(ANN, known.sign("Secret"))


def test_another_hash_or_another_user_by_the_name_is_not_known() -> None:
    known = KnownLogins(SeededRandom(1))
    known.learn(ANN, known.sign("secret"))
    for other in (replace(ANN, password_hash="new"), replace(ANN, id=UserId(8)), replace(ANN, hashing_algorithm="x")):
        assert not known.knows(other, known.sign("secret"))
    assert known.knows(replace(ANN, tags=("administrator",)), known.sign("secret"))


def test_what_stands_for_a_password_differs_from_process_to_process() -> None:
    assert KnownLogins(SeededRandom(1)).sign("secret") != KnownLogins(SeededRandom(2)).sign("secret")


def test_the_least_recently_used_is_forgotten_first() -> None:
    known = KnownLogins(SeededRandom(1), count_max=2)
    signed = known.sign("secret")
    known_users = [replace(ANN, name=name) for name in ("a", "b", "c")]
    known.learn(known_users[0], signed)
    known.learn(known_users[1], signed)
    assert known.knows(known_users[0], signed)
    known.learn(known_users[2], signed)
    assert [known.knows(user, signed) for user in known_users] == [True, False, True]
