"""Sockets to listen at: an address and a port, or a name in a directory.

A port that is taken is refused in words. The name of a socket that nobody listens at any more is replaced, a path that
is longer than the system takes is reached through its directory, and the name goes when we do: all that is shared with
the control socket of a database (`snapshot.control_socket`).
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress

from warren.base.errors import Refused
from warren.files.system_errors import translated
from warren.snapshot.control_socket import listener_at

_WAITING_MAX = 128


def tcp_listener(host: str, port: int) -> socket.socket:
    with translated("listen at", f"{host}:{port}"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=_WAITING_MAX)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Refused(
                f"somebody listens at {host}:{port} already", "stop that one, or choose another port"
            ) from error


class UnixListener:
    """Whoever serves the directory holds its lock, so the name is his, whoever listens there."""

    def __init__(self, path: str) -> None:
        self.path = path
        with translated("listen at", path):
            self.socket, self._inode = listener_at(path, takes_over=True)

    def close(self) -> None:
        self.socket.close()
        with suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                os.unlink(self.path)
