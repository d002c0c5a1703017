"""Settings of variable queues (memory and disk) and of queues in general. Documented in docs/operating.md; a test
compares."""

from __future__ import annotations

from dataclasses import dataclass

from warren.queue_index.row_format import RUN_COUNT_MAX, RUN_HEAP_BYTES_MAX


@dataclass(frozen=True, slots=True)
class VariableQueueSettings:
    queue_index_embed_msgs_below: int = 4096  # contents of fewer bytes stand in the queue index, others in the store
    run_messages_max: int = RUN_COUNT_MAX  # messages that stay together
    run_bytes_max: int = RUN_HEAP_BYTES_MAX  # their contents, unless a single one is larger
    page_messages_max: int = 16384  # what one step of paging moves
    page_bytes_max: int = 8 << 20  # about how much content one step of paging moves
    beta_messages_max: int = 65536  # positions that may stay in memory when contents must go
    delta_read_messages: int = 16384  # positions that are read back from disk at once
    read_ahead_bytes_max: int = 64 << 10  # contents that are read together when a message on disk is fetched
    counters_every_runs: int = 256  # how many runs a start may have to look at behind the counters
    rate_half_life_ms: int = 10_000  # what happened so long ago counts half in the rates


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
