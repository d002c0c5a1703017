"""How a connection is dropped so that its client learns of it: by RST, whatever waits to be sent.

After a FIN the client's first write succeeds, and is lost without an error.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final

_LINGER_NONE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 seconds


def reset(transport: asyncio.Transport) -> None:
    socket_ = transport.get_extra_info("socket")  # None in the simulator
    if socket_ is not None:
        with suppress(OSError):  # the client has reset it already
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    transport.abort()
