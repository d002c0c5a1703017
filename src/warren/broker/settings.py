"""Settings of queues as a whole. Documented in docs/operating.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueSettings:
    backing: str = "variable"  # kind of backing queue that a new queue gets, unless it asks for another
    memory_watermark_bytes: int = 80 << 20  # messages of all queues together may take so much memory
    memory_tick_seconds: float = 1.0  # how often the memory is shared out anew while nobody is over the watermark
    put_count_max: int = 1 << 16  # a put of more messages is cut: so many are one session …
    put_bytes_max: int = 8 << 20  # … or so many bytes, unless one message is larger
    cleaning_seconds: float = 5.0  # how often files are looked for of which little is alive
    settle_ms: int = 50  # an acknowledgement that nobody waits for is durable after so long
    restarts_max: int = 5  # a queue that fails more often …
    restarts_seconds: float = 10.0  # … within so long stays down
