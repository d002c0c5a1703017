"""Settings of the message stores. Documented in docs/configuration.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageStoreSettings:
    max_message_size: int = 128 << 20  # largest content, in bytes; a larger one is refused
    read_cache_bytes: int = 4 << 20  # cache of blocks of each store, for sequential reads
    transient_file_bytes: int = 64 << 20  # file size of the transient store
    gc_seconds: float = 5.0  # interval of collector passes, besides requests
    gc_census_seconds: float = 3600.0  # interval of full liveness scans
