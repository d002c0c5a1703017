"""Passwords and their hashes: ours, RabbitMQ's, and those that never verify."""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode

import pytest

from warren.base.environment import SystemRandom
from warren.base.errors import Refused
from warren.broker.auth import passwords
from warren.broker.auth.passwords import (
    PASSWORD_BYTES_MAX,
    Hashing,
    ScryptCost,
    checked_hashing,
    hashed,
    is_dated,
    is_readable,
    verify,
)
from warren.testing.fakes import SeededRandom

SCRYPT, SHA256, SHA512, MD5 = (each.value for each in Hashing)
CHEAP = ScryptCost(log2_n=4, r=1)


def rabbit(digest: str, password: str, salt: bytes = b"\x90\x8d\xc6\x0a") -> str:
    return b64encode(salt + hashlib.new(digest, salt + password.encode()).digest()).decode()


@pytest.fixture
def scrypt_calls(monkeypatch: pytest.MonkeyPatch) -> list[ScryptCost]:
    """Every use of scrypt, counted."""
    seen: list[ScryptCost] = []
    real = ScryptCost.digest

    def digest(self: ScryptCost, password: bytes, salt: bytes) -> bytes:
        seen.append(self)
        return real(self, password, salt)

    monkeypatch.setattr(ScryptCost, "digest", digest)
    return seen


def test_a_password_fits_its_own_hash_and_no_other() -> None:
    hash_text = hashed("gehéim", SystemRandom())
    assert hash_text.startswith("scrypt$ln=14,r=8,p=1$")
    assert verify("gehéim", hash_text, SCRYPT)
    assert not verify("geheim", hash_text, SCRYPT)
    assert "gehéim" not in hash_text


def test_the_same_password_gets_another_salt_each_time() -> None:
    rng = SeededRandom(1)
    assert hashed("a", rng, CHEAP) != hashed("a", rng, CHEAP)


def test_the_text_of_a_hash_is_golden() -> None:
    salt = bytes(range(16))
    password_hash = hashlib.scrypt(b"a", salt=salt, n=16, r=1, p=1, dklen=32)
    hash_text = f"scrypt$ln=4,r=1,p=1${b64encode(salt).decode()}${b64encode(password_hash).decode()}"
    assert verify("a", hash_text, SCRYPT) and not verify("b", hash_text, SCRYPT)


def test_hashes_of_rabbitmq_are_taken() -> None:
    known = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # RabbitMQ's own example: test12
    assert verify("test12", known, SHA256) and verify("test12", known, "")
    assert not verify("test13", known, SHA256) and not verify("test12", known, SHA512)
    assert verify("x", rabbit("sha512", "x"), SHA512) and not verify("y", rabbit("sha512", "x"), SHA512)


def test_md5_hashes_of_old_definitions_are_taken() -> None:
    assert verify("x", rabbit("md5", "x"), MD5) and not verify("y", rabbit("md5", "x"), MD5)
    assert checked_hashing(MD5) is Hashing.MD5


def test_a_new_hash_may_be_one_that_rabbitmq_can_import() -> None:
    hash_text = hashed("gehéim", SystemRandom(), hashing=Hashing.SHA256)
    raw = b64decode(hash_text)
    assert raw[4:] == hashlib.sha256(raw[:4] + "gehéim".encode()).digest()
    assert verify("gehéim", hash_text, SHA256) and not verify("geheim", hash_text, SHA256)
    assert hash_text != hashed("gehéim", SystemRandom(), hashing=Hashing.SHA256)


@pytest.mark.parametrize(
    ("password_hash", "hashing", "expected"),
    [
        ("", Hashing.SHA256, True),
        ("", Hashing.SCRYPT, True),
        ("a3ZXYg==", Hashing.SHA256, True),
        ("not base64!", Hashing.SHA256, False),
        ("====", Hashing.SHA256, False),
        ("A" * 10_000, Hashing.SHA512, False),
        ("scrypt$ln=4,r=1,p=1$AAAA$AAAA", Hashing.SCRYPT, True),
        ("scrypt$ln=30,r=8,p=1$AAAA$AAAA", Hashing.SCRYPT, False),
        ("a3ZXYg==", Hashing.SCRYPT, False),
    ],
)
def test_the_form_of_a_hash_is_checked(password_hash: str, hashing: Hashing, expected: bool) -> None:
    assert is_readable(password_hash, hashing) is expected


def test_an_unknown_algorithm_is_refused_by_name() -> None:
    assert checked_hashing(SHA512) is Hashing.SHA512
    assert checked_hashing("") is Hashing.SHA256
    with pytest.raises(Refused, match="no password hashing 'rot13'"):
        checked_hashing("rot13")
    assert not verify("x", rabbit("sha256", "x"), "rot13")


@pytest.mark.parametrize("password", ["", "x" * (PASSWORD_BYTES_MAX + 1), "é" * (PASSWORD_BYTES_MAX // 2 + 1)])
def test_an_empty_or_endless_password_is_never_hashed(password: str, scrypt_calls: list[ScryptCost]) -> None:
    with pytest.raises(Refused, match="a password cannot have"):
        hashed(password, SeededRandom(1))
    assert not verify(password, rabbit("sha256", password), SHA256)
    assert not scrypt_calls


def test_the_longest_password_is_taken() -> None:
    password = "x" * PASSWORD_BYTES_MAX
    assert verify(password, hashed(password, SeededRandom(1), CHEAP), SCRYPT)


@pytest.mark.parametrize(
    ("password_hash", "hashing"),
    [
        (None, SCRYPT),
        ("", SHA256),
        ("", SCRYPT),
        ("not base64!", SHA256),
        ("AAAA", SHA256),
        (rabbit("sha256", "other"), SHA256),
        (rabbit("md5", "other"), MD5),
        ("A" * 10_000, SHA256),
        ("scrypt$ln=4,r=1,p=1$AAAA", SCRYPT),
        ("scrypt$ln=4,r=1,p=1$AAA$AAAA", SCRYPT),
        ("scrypt$ln=4,r=1,p=1$$", SCRYPT),
        ("scrypt$ln=0,r=1,p=1$AAAA$AAAA", SCRYPT),
        (rabbit("sha256", "x"), SCRYPT),
        (rabbit("sha256", "x"), "rot13"),
    ],
)
def test_every_failure_takes_one_scrypt_so_that_timing_reveals_no_users(
    password_hash: str | None, hashing: str, scrypt_calls: list[ScryptCost]
) -> None:
    assert not verify("x", password_hash, hashing)
    assert len(scrypt_calls) == 1


@pytest.mark.parametrize("cost", ["ln=30,r=8,p=1", "ln=14,r=999,p=1", "ln=14,r=8,p=999", "ln=99,r=999,p=999"])
def test_a_hash_that_costs_too_much_is_not_computed(cost: str, scrypt_calls: list[ScryptCost]) -> None:
    assert not verify("x", f"scrypt${cost}$AAAA$AAAA", SCRYPT)
    assert scrypt_calls == [passwords.USUAL_COST]


def test_a_hash_is_dated_if_a_new_one_would_be_of_another_kind_or_cost() -> None:
    assert is_dated(rabbit("sha256", "x"), SHA256, Hashing.SCRYPT)
    assert is_dated(hashed("x", SeededRandom(1), CHEAP), SCRYPT, Hashing.SCRYPT)
    assert not is_dated(hashed("x", SeededRandom(1), CHEAP), SCRYPT, Hashing.SCRYPT, CHEAP)
    assert not is_dated(hashed("x", SeededRandom(1)), SCRYPT, Hashing.SCRYPT)
    assert is_dated(hashed("x", SeededRandom(1), CHEAP), SCRYPT, Hashing.SHA256)
    assert not is_dated(rabbit("sha256", "x"), SHA256, Hashing.SHA256)
