"""Settings of the server. Documented in docs/configuration.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RABBITMQ_VERSION: Final = "3.10.8"  # announced to clients, which compare it before they use a feature


VERIFY_PEER: Final = "verify_peer"
COMMON_NAME: Final = "common_name"
ListenAddress = tuple[str, int]  # host; empty: `ServerSettings.host`


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Names and values as in RabbitMQ."""

    certfile: str = ""  # PEM; the certificate of the server, then its intermediates
    keyfile: str = ""  # PEM; empty: the key is in `certfile`
    cacertfile: str = ""  # PEM; authorities of client certificates
    verify: str = "verify_none"  # or verify_peer: certificates of clients are verified
    fail_if_no_peer_cert: bool = False  # with verify_peer: a client must have one
    versions: tuple[str, ...] = ("tlsv1.3", "tlsv1.2")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 5672  # 0: any free port
    more_listeners: tuple[ListenAddress, ...] = ()  # without TLS, as host and port
    has_plain_tcp: bool = True  # False: only the listeners with TLS
    tls_listeners: tuple[ListenAddress, ...] = ()
    tls_handshake_seconds: float = 5.0  # of TLS alone; `handshake_seconds` follows
    certificate_user_from: str = "distinguished_name"  # or common_name: the user of EXTERNAL
    product: str = "Warren"  # announced to clients; some of them require "RabbitMQ"
    product_version: str = ""  # announced version; empty: RABBITMQ_VERSION
    channel_max: int = 2047
    frame_max: int = 131_072
    initial_frame_max: int = 8192  # bytes of a frame before tuning
    heartbeat_seconds: int = 60
    handshake_seconds: float = 10.0  # from connect to `connection.open`; the broker's own time does not count
    half_open_max: int = 1024  # above it, the oldest connection of the address with the most is dropped
    message_bytes_max: int = 128 << 20
    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    anonymous_login_user: str = ""  # of clients that log in by ANONYMOUS; empty: that is not offered
    loopback_users: tuple[str, ...] = ("guest",)  # may log in from this machine only
    login_delay_seconds: float = 1.0  # delay of the answer to a refused login
    password_hashing: str = "scrypt"  # of new passwords; or sha256, which RabbitMQ can import
    password_rehash: bool = False  # at a login, replace a hash that is not of this kind
    unsafe_bytes_max: int = 32 << 20  # published and not durable yet; above it publishers are not read
    unsent_bytes_max: int = 1 << 20  # send-buffer limit per connection; above it deliveries to it pause
    consumer_timeout_ms: int = 1_800_000  # an unacked delivery that is older closes its channel; 0: never
    disk_free_min_bytes: int = 50_000_000  # free space below it blocks publishers
    drain_seconds: float = 10.0  # time limit for clients to disconnect when the server stops

    @property
    def plain_listeners(self) -> tuple[ListenAddress, ...]:
        return ((self.host, self.port), *self.more_listeners) if self.has_plain_tcp else ()

    @property
    def offered_mechanisms(self) -> tuple[str, ...]:
        """Of SASL."""
        others = tuple(name for name in self.mechanisms if name != "ANONYMOUS")
        return (*others, "ANONYMOUS") if self.anonymous_login_user else others

    @property
    def announced_version(self) -> str:
        """The version for clients of AMQP and HTTP."""
        return self.product_version or RABBITMQ_VERSION
