"""Responses of SASL: what is read, and what is the client's fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import binary, sampled_from

from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.types import write_table
from warren.server.authentication import MECHANISMS, Login, read_login


def amqplain(**fields: object) -> bytes:
    return write_table(fields)[4:]


def test_plain_has_a_name_and_a_password() -> None:
    assert read_login("PLAIN", b"\0ann\0secret", MECHANISMS) == Login("ann", "secret", "PLAIN")
    assert read_login("PLAIN", b"ann\0ann\0secret", MECHANISMS) == Login("ann", "secret", "PLAIN")
    assert read_login("PLAIN", "\0änn\0sécret".encode(), MECHANISMS) == Login("änn", "sécret", "PLAIN")
    assert read_login("PLAIN", b"\0ann\0", MECHANISMS).password == ""


def test_amqplain_has_them_in_a_table_without_its_size() -> None:
    assert read_login("AMQPLAIN", amqplain(LOGIN="ann", PASSWORD="secret"), MECHANISMS) == Login(
        "ann", "secret", "AMQPLAIN"
    )
    assert read_login("AMQPLAIN", amqplain(PASSWORD=b"secret", LOGIN="ann", x=1), MECHANISMS).password == "secret"


@pytest.mark.parametrize(
    ("mechanism", "response", "text"),
    [
        ("PLAIN", b"", "is not `0 name 0 password`"),
        ("PLAIN", b"ann\0secret", "is not `0 name 0 password`"),
        ("PLAIN", b"\0ann\0sec\0ret", "is not `0 name 0 password`"),
        ("PLAIN", b"root\0ann\0secret", "asks to act as another user"),
        ("PLAIN", b"\0\xff\0secret", "has a name that is not UTF-8"),
        ("PLAIN", b"\0ann\0\xff", "has a password that is not UTF-8"),
        ("PLAIN", b"\0" + b"n" * 256 + b"\0secret", "has a name of 256 bytes, at most 255 are read"),
        ("PLAIN", b"\0ann\0" + b"p" * 1025, "has a password of 1025 bytes, at most 1024 are read"),
        ("PLAIN", b"\0ann\0" + b"p" * 5000, "has 5005 bytes, at most 4096 are read"),
        ("AMQPLAIN", b"", "has no LOGIN or no PASSWORD, as texts"),
        ("AMQPLAIN", amqplain(LOGIN="ann"), "has no LOGIN or no PASSWORD, as texts"),
        ("AMQPLAIN", amqplain(LOGIN="ann", PASSWORD=7), "has no LOGIN or no PASSWORD, as texts"),
    ],
)
def test_another_shape_is_refused_in_words(mechanism: str, response: bytes, text: str) -> None:
    with pytest.raises(PeerError, match="SYNTAX_ERROR") as refused:
        read_login(mechanism, response, MECHANISMS)
    assert refused.value.explanation == f"the {mechanism} response {text}"


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL", "plain", ""])
def test_what_is_not_there_cannot_be_chosen(mechanism: str) -> None:
    with pytest.raises(PeerError, match="unknown authentication mechanism") as refused:
        read_login(mechanism, b"\0guest\0guest", [*MECHANISMS, mechanism])
    assert refused.value.code is ReplyCode.COMMAND_INVALID


def test_what_was_not_offered_cannot_be_chosen() -> None:
    with pytest.raises(PeerError, match="unknown authentication mechanism 'PLAIN'"):
        read_login("PLAIN", b"\0guest\0guest", ["AMQPLAIN"])


def test_a_password_is_shown_nowhere() -> None:
    assert "secret" not in repr(Login("ann", "secret"))
    with pytest.raises(PeerError) as refused:
        read_login("PLAIN", b"root\0ann\0secret", MECHANISMS)
    assert "secret" not in str(refused.value)


@given(sampled_from(["PLAIN", "AMQPLAIN"]), binary(max_size=200))
def test_any_bytes_are_a_login_or_the_clients_fault(mechanism: str, response: bytes) -> None:
    codes = set()
    try:
        login = read_login(mechanism, response, MECHANISMS)
    except PeerError as error:
        codes.add(error.code)
    else:
        assert login.user.encode() in response
    assert codes <= {ReplyCode.SYNTAX_ERROR, ReplyCode.FRAME_ERROR, ReplyCode.RESOURCE_ERROR}
