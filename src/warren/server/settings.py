"""Settings of the server. Documented in docs/operating.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RABBITMQ_VERSION: Final = "3.10.8"  # whose answers the broker gives; clients compare it before they use a feature


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 5672  # 0 picks one
    product: str = "Warren"  # what clients are told we are; some of them ask for "RabbitMQ"
    product_version: str = ""  # … and of which version; empty: RABBITMQ_VERSION
    channel_max: int = 2047
    frame_max: int = 131_072
    initial_frame_max: int = 8192  # bytes of a frame, before it is agreed on with the client
    heartbeat_seconds: int = 60
    handshake_seconds: float = 10.0  # a client has so long until it has opened a vhost; the broker's own time is extra
    half_open_max: int = 1024  # connections that have not; one more drops the oldest of the address with the most
    message_bytes_max: int = 128 << 20
    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    loopback_users: tuple[str, ...] = ("guest",)  # may log in from this machine only
    login_delay_seconds: float = 1.0  # a refused login is answered after so long
    unsafe_bytes_max: int = 32 << 20  # published and not durable yet: above it publishers are not read
    unsent_bytes_max: int = 1 << 20  # waiting for one client to read it: above it nothing more is delivered to it
    disk_free_min_bytes: int = 50_000_000  # less than that blocks publishers
    drain_seconds: float = 10.0  # clients have so long to go when the server is stopped

    @property
    def announced_version(self) -> str:
        """What clients of AMQP and HTTP get as the version."""
        return self.product_version or RABBITMQ_VERSION
