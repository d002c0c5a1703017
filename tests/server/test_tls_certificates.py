"""What certificates contain: the end of their validity, and the name of a client."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.server.certificates import Authority
from warren.base.errors import Misuse
from warren.server.settings import COMMON_NAME
from warren.server.tls import certificate_user, expiry_dates

NAME = "distinguished_name"


def subject(*parts: tuple[str, str]) -> dict[str, Any]:
    return {"subject": tuple((part,) for part in parts)}


@pytest.mark.parametrize("days", [1, 400, 20_000])  # the last one has a year with four digits
def test_the_end_of_the_validity_is_that_of_openssl(tmp_path: Path, days: int) -> None:
    authority = Authority(tmp_path)
    pem = authority.issue("server", days=days).cert.read_text()
    found = expiry_dates(f"text before\n{pem}{authority.cert.read_text()}")
    shown = [enddate(pem), enddate(authority.cert.read_text())]
    assert [f"{date:%b %e %H:%M:%S %Y} GMT" for date in found] == shown
    assert isinstance(found[0], datetime)


def enddate(pem: str) -> str:
    command = ["openssl", "x509", "-noout", "-enddate"]
    shown = subprocess.run(command, input=pem, capture_output=True, text=True, check=True).stdout
    return shown.strip().removeprefix("notAfter=")


def test_a_certificate_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    pem = Authority(tmp_path).cert.read_text()
    assert expiry_dates("no certificate") == []
    for size in range(30, len(pem) - 30, 7):
        with pytest.raises(Misuse):
            expiry_dates(pem[:size])


@pytest.mark.parametrize(
    ("certificate", "common_name", "distinguished_name"),
    [
        (None, None, None),
        ({}, None, None),
        (subject(("organizationName", "shop")), None, "O=shop"),
        (subject(("countryName", "DE"), ("commonName", "ann")), "ann", "CN=ann,C=DE"),
        (subject(("commonName", " a,b+c\\")), " a,b+c\\", "CN=\\ a\\,b\\+c\\\\"),
        (subject(("commonName", "#1 ")), "#1 ", "CN=\\#1\\ "),
        (subject(("serialNumber", "7"), ("emailAddress", "a@b")), None, "emailAddress=a@b,serialNumber=7"),
    ],
)
def test_a_client_is_named_by_its_certificate(
    certificate: dict[str, Any] | None, common_name: str | None, distinguished_name: str | None
) -> None:
    found = certificate_user(certificate, COMMON_NAME), certificate_user(certificate, NAME)
    assert found == (common_name, distinguished_name)
