"""Settings of the management. Documented in docs/operating.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ManagementSettings:
    header_bytes_max: int = 16 << 10  # the head of a request
    header_seconds: float = 10.0  # a client has so long to send one
    body_bytes_max: int = 1 << 20
    body_seconds: float = 10.0  # … and so long for what follows it
    json_depth_max: int = 32
    connections_max: int = 256  # at one address; further requests are answered 503
    reader_seconds: float = 30.0  # an answer of which nothing was read for so long is given up
    idle_seconds: int = 30  # a connection that asks nothing is closed
    threads: int = 4  # that answer requests
    stop_seconds: int = 5  # requests that are under way have so long when the server stops
