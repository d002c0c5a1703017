"""HTTP by hand: heads and bodies that no library would send."""

from __future__ import annotations

import base64
import socket
from contextlib import suppress

from tests.management.stage import PASSWORD, ManagementStage


def head(method: str, path: str, *lines: str) -> bytes:
    login = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
    lines_sent = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Basic {login}", *lines]
    return "\r\n".join(lines_sent).encode() + b"\r\n\r\n"


def raw(stage: ManagementStage, sent: bytes, address: str = "http") -> bytes:
    """Everything that comes back until the server hangs up, or is silent."""
    with socket.create_connection(stage.serving.addresses[address], timeout=5) as client:
        with suppress(ConnectionError):  # hung up on while it sends
            client.sendall(sent)
        received = b""
        while True:
            try:
                piece = client.recv(1 << 16)
            except TimeoutError:
                assert received, "neither answered nor disconnected"
                return received
            except ConnectionError:
                return received
            if not piece:
                return received
            received += piece
