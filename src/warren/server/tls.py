"""TLS of listeners: contexts made from certificate files, their reload, and what certificates contain.

    ssl_options.* ──▶ TlsSettings ──▶ Tls.context ──▶ listeners of AMQP or HTTP
    SIGHUP        ──▶ Tls.reload: the files are read again ──▶ connections from now on; open ones stay as they are

A listener keeps one context as long as it lives, and that context passes each new connection to the present one. So
certificate, key and authorities change together. Changing one `SSLContext` in place would not do: it can add a
certificate authority, and never remove one.

Files that cannot be used are refused at the start. At a reload they are an error in the event log, and the files read
before stay in force.

`TlsSession`: what the handshake of one connection agreed on. `certificate_user`: the user of EXTERNAL, from the
certificate of a client. `expiry_dates` reads only the end of the
validity from each certificate of a PEM file: the standard library has no decoder for a file.

Invariants
* TLS 1.2 or later, no renegotiation. An encrypted key is refused: OpenSSL would read its password from the terminal.
* A client has a user only if its certificate was verified against `cacertfile`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple

from warren.base.errors import Misuse
from warren.server.settings import COMMON_NAME, VERIFY_PEER, TlsSettings

_LOG = logging.getLogger(__name__)
_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}


class HandshakeObject(ssl.SSLObject):
    """Logs why a handshake fails; the event loop closes the socket without a word."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            _LOG.warning("TLS handshake failed", extra={"facts": {"why": error.reason or str(error)}})
            raise


class ServerContext(ssl.SSLContext):
    """What is in force for new connections."""

    def configure(self, settings: TlsSettings) -> None:
        """All but the files."""
        versions = [_VERSIONS[name] for name in settings.versions]
        self.minimum_version, self.maximum_version = min(versions), max(versions)
        self.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        self.sslobject_class = HandshakeObject
        if settings.verify == VERIFY_PEER:
            self.verify_mode = ssl.CERT_REQUIRED if settings.fail_if_no_peer_cert else ssl.CERT_OPTIONAL


class ReloadableContext(ssl.SSLContext):
    """The context of a listener; connections get the present one."""

    _present: ssl.SSLContext

    def replace(self, present: ssl.SSLContext) -> None:
        self._present = present

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self._present.wrap_bio(*arguments, **named)


class Tls:
    def __init__(self, settings: TlsSettings, keys: str = "ssl_options") -> None:
        """`keys`: the prefix of the settings in rabbitmq.conf, for errors."""
        self.settings = settings
        self._keys = keys
        self._context = ReloadableContext(ssl.PROTOCOL_TLS_SERVER)
        self.reload()

    @property
    def context(self) -> ssl.SSLContext:
        return self._context

    def reload(self) -> None:
        """Read the files again. Raises `Misuse`, and changes nothing, if they cannot be used."""
        self._context.replace(self._made())

    def _made(self) -> ssl.SSLContext:
        settings = self.settings
        if not settings.certfile:
            raise Misuse(f"{self._keys}.certfile is not set", "TLS needs a certificate: certfile and keyfile")
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.configure(settings)
        try:
            context.load_cert_chain(settings.certfile, settings.keyfile or None, password=_no_password)
        except (OSError, ValueError) as error:
            raise self._unusable("certfile", f"{settings.certfile} and its key {settings.keyfile}", error) from error
        if settings.verify == VERIFY_PEER:
            if not settings.cacertfile:
                raise Misuse(f"{self._keys}.cacertfile is not set", "verify_peer needs the authorities of clients")
            try:
                context.load_verify_locations(settings.cacertfile)
            except (OSError, ValueError) as error:
                raise self._unusable("cacertfile", settings.cacertfile, error) from error
        return context

    def _unusable(self, key: str, path: str, error: Exception) -> Misuse:
        why = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        return Misuse(f"{self._keys}.{key}: {path}: {why}", "PEM files that the broker may read, the key not encrypted")


def _no_password() -> str:
    raise ValueError("the key is encrypted")


# -- connections ------------------------------------------------------------------------------------------------------


class CipherSuite(NamedTuple):
    """In RabbitMQ's words."""

    key_exchange: str  # any, ecdhe_rsa, …
    cipher: str  # aes_256_gcm, …
    mac: str  # aead, sha256, …


class TlsSession(NamedTuple):
    version: str  # tlsv1.3
    suite: str  # OpenSSL's name
    certificate: Mapping[str, Any]  # of the client, if it was verified; as `SSLObject.getpeercert` returns it

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> TlsSession | None:
        """None without TLS. In the thread of the event loop: OpenSSL's objects are not thread-safe."""
        tls = transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        suite, _, _ = tls.cipher()
        return cls(str(tls.version()).lower(), suite, transport.get_extra_info("peercert") or {})

    @property
    def cipher_suite(self) -> CipherSuite:
        return _suites()[self.suite]


@cache
def _suites() -> dict[str, CipherSuite]:
    """All that a listener offers, by OpenSSL's names."""
    found = {}
    for each in map(dict[str, Any], ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()):
        parts = (each["kea"].removeprefix("kx-"), each["auth"].removeprefix("auth-"))
        key_exchange = "_".join(dict.fromkeys(parts))  # `any` and `rsa` are both
        found[each["name"]] = CipherSuite(key_exchange, each["symmetric"].replace("-", "_"), each["digest"] or "aead")
    return found


# -- client certificates ----------------------------------------------------------------------------------------------

_SHORT_NAMES: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED: Final = ',+"\\<>;'


def certificate_user(certificate: Mapping[str, Any] | None, source: str) -> str | None:
    """The user that a verified certificate names, as `SSLObject.getpeercert` returns it; None if there is none.
    `source`: COMMON_NAME, or the distinguished name."""
    subject = (certificate or {}).get("subject", ())
    if source == COMMON_NAME:
        names = [value for part in subject for name, value in part if name == "commonName"]
        return names[-1] if names else None
    return distinguished_name(subject) or None


def distinguished_name(parts: Sequence[Sequence[tuple[str, str]]]) -> str:
    """As in RFC 4514: `CN=ann,O=shop`."""
    return ",".join("+".join(_attribute(*each) for each in part) for part in reversed(parts) if part)


def _attribute(name: str, value: str) -> str:
    text = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in value)
    if text[:1] in ("#", " "):
        text = f"\\{text}"
    if text.endswith(" ") and len(text) > 1:
        text = f"{text[:-1]}\\ "
    return f"{_SHORT_NAMES.get(name, name)}={text}"


def validity(certificate: Mapping[str, Any]) -> tuple[datetime, datetime]:
    """Its begin and end."""
    first, last = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
    return datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC)


# -- files ------------------------------------------------------------------------------------------------------------

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_EXPLICIT_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


def expiry_dates(pem: str) -> list[datetime]:
    """The end of the validity of each certificate in a PEM text. Raises `Misuse` if one cannot be read."""
    found = []
    for part in pem.split(_BEGIN)[1:]:
        body, end, _ = part.partition(_END)
        try:
            if not end:
                raise ValueError("the end is missing")
            found.append(_not_after(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}\n")))
        except (ValueError, IndexError) as error:
            raise Misuse(f"a certificate cannot be read: {error}") from error
    return found


def _not_after(der: bytes) -> datetime:
    """Certificate ▸ TBSCertificate ▸ version?, serial number, signature, issuer, validity ▸ not before, not after."""
    [certificate] = _elements(der)
    to_be_signed = next(_elements(certificate[1]))
    fields = list(_elements(to_be_signed[1]))
    validity = fields[4 if fields[0][0] == _EXPLICIT_VERSION else 3]
    _, (tag, raw) = _elements(validity[1])
    text = raw.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 … 2049
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each DER element."""
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(der[at : at + width], "big")
            at += width
        if at + size > len(der):
            raise ValueError("an element is cut off")
        yield tag, der[at : at + size]
        at += size
