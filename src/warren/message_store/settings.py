"""Everything that can be set about the message stores. Documented in docs/operating.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageStoreSettings:
    max_message_size: int = 128 << 20  # largest content, in bytes; a larger one is refused
    read_cache_bytes: int = 4 << 20  # blocks kept by each store for whoever reads on
    transient_file_bytes: int = 64 << 20  # a file of the transient store of this size is followed by another
    gc_seconds: float = 5.0  # how often garbage is looked for, unless somebody asks sooner
    gc_census_seconds: float = 3600.0  # how often every file is counted again, whatever was noted
