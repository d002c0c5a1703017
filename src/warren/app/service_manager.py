"""Notifications to the service manager that started the broker: systemd with Type=notify, or one that speaks the same.

    recovering   STATUS=recovering: 40 %              ready      READY=1, STATUS=serving AMQP at …
    watchdog     WATCHDOG=1, twice per WatchdogSec    stopping   STOPPING=1, STATUS=draining clients

One datagram each, to the socket that NOTIFY_SOCKET names; without that variable nothing is sent. A datagram that cannot
be sent is logged once and otherwise ignored: the manager has its own time limits. The watchdog is fed from the event
loop, so a loop that hangs is restarted by the manager.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

_LOG = logging.getLogger(__name__)
SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_MICROSECONDS: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"


class ServiceManager:
    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get(SOCKET, "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name  # @: an abstract socket
        self._has_failed = False
        self._status = ""
        self.watchdog_seconds = _watchdog_seconds(environment) if name else 0.0  # 0: there is none

    def recovering(self, percent: int) -> None:
        status = f"recovering: {percent} %"
        if status != self._status:
            self._send(status)

    def ready(self, status: str) -> None:
        self._send(status, "READY=1")

    def alive(self) -> None:
        self._send("", "WATCHDOG=1")

    def stopping(self) -> None:
        self._send("draining clients", "STOPPING=1")

    def _send(self, status: str, *states: str) -> None:
        if not self._address:
            return
        self._status = status or self._status
        message = "\n".join([*states, *([f"STATUS={status}"] if status else [])])
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _LOG.warning("service manager not notified", extra={"facts": {"why": error}})
            self._has_failed = True


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """The interval of notifications: half of WatchdogSec, if it is meant for this process."""
    microseconds, pid = environment.get(WATCHDOG_MICROSECONDS, ""), environment.get(WATCHDOG_PID, "")
    is_meant = microseconds.isdecimal() and pid in ("", str(os.getpid()))
    return int(microseconds) / 2e6 if is_meant else 0.0
