"""Certificates for tests, made by the openssl command: an authority, and what it signs."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificate:
    cert: Path
    key: Path

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.cert.read_text())


class Authority:
    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.cert, self._key = directory / f"{name}.pem", directory / f"{name}.key"
        _openssl("req", "-x509", *_KEY, "-days", "30", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.cert)

    def issue(self, name: str, subject: str = "/CN=localhost", days: int = 30) -> Certificate:
        """For 127.0.0.1 and localhost. Issued again under the same name, it replaces the one before."""
        cert, key, request = (self._directory / f"{name}.{suffix}" for suffix in ("pem", "key", "csr"))
        _openssl("req", *_KEY, "-subj", subject, "-keyout", key, "-out", request)
        extension = self._directory / f"{name}.ext"
        extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        signing = ("-CA", self.cert, "-CAkey", self._key, "-CAcreateserial", "-days", str(days), "-extfile", extension)
        _openssl("x509", "-req", "-in", request, *signing, "-out", cert)
        return Certificate(cert, key)

    def client_context(self, certificate: Certificate | None = None) -> ssl.SSLContext:
        """Of a client that trusts this authority only."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if certificate is not None:
            context.load_cert_chain(certificate.cert, certificate.key)
        return context


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
