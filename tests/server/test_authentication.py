"""Logins against a catalog: which are accepted, what refusals have in common, and their cost."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from tests.catalog.catalog_stage import CatalogStage
from warren.base.errors import OutOfRoom
from warren.broker.auth.passwords import Hashing, hashed, verify
from warren.catalog import users
from warren.catalog.users import UserRow
from warren.server import authentication
from warren.server.authentication import Login, LoginRefused, UserAuthentication
from warren.server.settings import ServerSettings

HERE = "127.0.0.1"
AWAY = "192.0.2.7"


class Stage(CatalogStage):
    """A catalog with users, and a counter of password hashes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.begin()
        self.hashes = 0
        monkeypatch.setattr(authentication, "verify", self._counted)
        self.users = UserAuthentication(self.catalog, self.environment(), ServerSettings())

    def rehash(self) -> None:
        """With the option that replaces hashes at a login."""
        self.users = UserAuthentication(self.catalog, self.environment(), ServerSettings(password_rehash=True))

    def add(self, name: str, password: str) -> UserRow:
        return self.add_hash(name, hashed(password, self.rng), Hashing.SCRYPT)

    def add_hash(self, name: str, password_hash: str, hashing: Hashing) -> UserRow:
        return self.catalog.change(lambda change: users.put(change, name, password_hash, hashing.value))

    def check(self, name: str, password: str, peer: str = AWAY) -> str:
        return self.users.check(Login(name, password), peer).name

    def refusal(self, name: str, password: str, peer: str = AWAY) -> LoginRefused:
        with pytest.raises(LoginRefused) as refused:
            self.check(name, password, peer)
        return refused.value

    def _counted(self, *arguments: Any) -> bool:
        self.hashes += 1
        return verify(*arguments)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(monkeypatch)
    yield made
    made.stop()


def test_the_right_password_lets_a_user_in(stage: Stage) -> None:
    stage.add("ann", "secret")
    assert stage.check("ann", "secret") == "ann"


def test_every_refusal_is_the_same_and_costs_a_hash(stage: Stage) -> None:
    stage.add("ann", "secret")
    stage.add("guest", "guest")
    stage.add_hash("empty", "", Hashing.SHA256)
    expected = (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    )
    wrong = [("ann", "Secret"), ("bob", "secret"), ("guest", "guest"), ("empty", "x"), ("empty", ""), ("ann", "")]
    for number, (name, password) in enumerate(wrong):
        assert stage.refusal(name, password, f"192.0.2.{number}").text == expected
    assert stage.hashes == len(wrong)
    assert "AMQPLAIN" in LoginRefused("AMQPLAIN", 1.0).text


def test_guest_comes_from_this_machine_only(stage: Stage) -> None:
    stage.add("guest", "guest")
    assert [stage.check("guest", "guest", peer) for peer in (HERE, "::1", "::ffff:127.0.0.1", "")] == ["guest"] * 4
    stage.refusal("guest", "guest", AWAY)
    anywhere = UserAuthentication(stage.catalog, stage.environment(), ServerSettings(loopback_users=()))
    assert anywhere.check(Login("guest", "guest"), AWAY).name == "guest"


def test_a_hundred_logins_of_one_user_cost_one_hash(stage: Stage) -> None:
    stage.add("ann", "secret")
    assert [stage.check("ann", "secret") for _ in range(100)] == ["ann"] * 100
    assert stage.hashes == 1
    stage.refusal("ann", "Secret")
    assert stage.hashes == 2


def test_logins_at_the_same_moment_share_one_hash(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.add("ann", "secret")
    has_begun, resumed = Event(), Event()

    def slowly(*arguments: Any) -> bool:
        stage.hashes += 1
        has_begun.set()
        resumed.wait(60)
        return verify(*arguments)

    monkeypatch.setattr(authentication, "verify", slowly)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(stage.check, "ann", "secret")
        assert has_begun.wait(60)
        others = [pool.submit(stage.check, "ann", "secret") for _ in range(7)]
        resumed.set()
        assert [each.result(60) for each in (first, *others)] == ["ann"] * 8
    assert stage.hashes == 1


def test_a_new_password_counts_at_once(stage: Stage) -> None:
    ann = stage.add("ann", "secret")
    stage.check("ann", "secret")
    password_hash = hashed("other", stage.rng)
    stage.catalog.change(lambda change: users.change_password(change, ann.id, password_hash, Hashing.SCRYPT.value))
    stage.refusal("ann", "secret")
    assert stage.check("ann", "other") == "ann"


def test_a_deleted_user_is_out_at_once_and_tags_are_those_of_now(stage: Stage) -> None:
    ann = stage.add("ann", "secret")
    stage.check("ann", "secret")
    stage.catalog.change(lambda change: users.set_tags(change, ann.id, ["administrator"]))
    assert stage.users.check(Login("ann", "secret"), AWAY).tags == ("administrator",)
    stage.catalog.change(lambda change: users.delete(change, ann.id))
    stage.refusal("ann", "secret")


def rabbit_hash(password: bytes) -> str:
    salt = b"\x01\x02\x03\x04"
    return base64.b64encode(salt + hashlib.sha256(salt + password).digest()).decode()


def test_a_hash_of_rabbitmq_is_kept(stage: Stage) -> None:
    old = stage.add_hash("ann", rabbit_hash(b"secret"), Hashing.SHA256)
    assert stage.check("ann", "secret") == "ann"
    assert stage.users.find("ann") == old


@pytest.mark.parametrize(("kind", "expected"), [("scrypt", Hashing.SCRYPT), ("sha256", Hashing.SHA256)])
def test_a_login_replaces_a_hash_of_another_kind_if_it_is_told_to(stage: Stage, kind: str, expected: Hashing) -> None:
    settings = ServerSettings(password_hashing=kind, password_rehash=True)
    stage.users = UserAuthentication(stage.catalog, stage.environment(), settings)
    stage.add_hash("ann", rabbit_hash(b"secret"), Hashing.SHA256)
    stage.add("ben", "secret")
    for name in ("ann", "ben"):
        assert stage.check(name, "secret") == name
        found = stage.users.find(name)
        assert found is not None and found.hashing_algorithm == expected.value


def test_a_hash_of_rabbitmq_is_made_anew_at_the_first_login(stage: Stage) -> None:
    stage.rehash()
    old = stage.add_hash("ann", rabbit_hash(b"secret"), Hashing.SHA256)
    stage.refusal("ann", "wrong")
    assert stage.users.find("ann") == old
    stage.check("ann", "secret")
    found = stage.users.find("ann")
    assert found is not None and found.hashing_algorithm == Hashing.SCRYPT.value and found.id == old.id
    assert stage.check("ann", "secret") == "ann"
    assert stage.hashes == 2


def test_a_full_disk_refuses_no_login(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.rehash()
    stage.add_hash("ann", rabbit_hash(b"secret"), Hashing.SHA256)

    def full(work: object) -> object:
        raise OutOfRoom("no space left")

    monkeypatch.setattr(stage.catalog, "change", full)
    assert stage.check("ann", "secret") == "ann"
    assert "password rehash failed" in caplog.text


def test_refusals_wait_longer_each_time_and_then_are_not_even_hashed(stage: Stage) -> None:
    stage.add("ann", "secret")
    stage.check("ann", "secret")
    waits = [stage.refusal("ann", f"guess {number}").delay_seconds for number in range(12)]
    assert waits[:4] == [1.0, 2.0, 3.0, 3.0] and max(waits) == 3.0
    hashes = stage.hashes
    stage.refusal("ann", "one more guess")
    assert stage.hashes == hashes
    assert stage.check("ann", "secret") == "ann", "known logins are not held back"


def test_the_event_log_has_the_reason(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.add("ann", "secret")
    with caplog.at_level(logging.WARNING):
        stage.refusal("ann", "guess")
    (record,) = caplog.records
    facts = record.__dict__["facts"]
    assert facts == {"user": "ann", "peer": AWAY, "mechanism": "PLAIN", "why": "wrong password"}
    assert "guess" not in caplog.text


def test_a_concurrent_change_is_not_overwritten_by_a_new_hash(stage: Stage) -> None:
    old = stage.add_hash("ann", rabbit_hash(b"secret"), Hashing.SHA256)
    stale = replace(old, tags=("management",))
    assert stage.users._renewed(stale, "secret") == stale
    assert stage.users.find("ann") == old
