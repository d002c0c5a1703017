"""How variable queues share messages between memory and disk. Documented in docs/operating.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass

from warren.queue_index.format import RUN_COUNT_MAX, RUN_HEAP_BYTES_MAX


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
