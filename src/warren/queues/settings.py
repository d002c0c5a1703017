"""Settings of variable queues (memory and disk) and of queues in general. Documented in docs/configuration.md; a test
compares."""

from __future__ import annotations

from dataclasses import dataclass

from warren.queue_index.row_format import RUN_COUNT_MAX, RUN_HEAP_BYTES_MAX


@dataclass(frozen=True, slots=True)
class VariableQueueSettings:
    queue_index_embed_msgs_below: int = 4096  # smaller contents are in the queue index, others in the store
    run_messages_max: int = RUN_COUNT_MAX  # messages that stay together
    run_bytes_max: int = RUN_HEAP_BYTES_MAX  # their contents, unless a single one is larger
    page_messages_max: int = 16384  # what one step of paging moves
    page_bytes_max: int = 8 << 20  # about how much content one step of paging moves
    beta_messages_max: int = 65536  # positions that may stay in memory when contents must go
    delta_read_messages: int = 16384  # positions that are read back from disk at once
    read_ahead_bytes_max: int = 64 << 10  # contents that are read together when a message on disk is fetched
    counters_every_runs: int = 256  # runs that a start may have to read behind the counters
    rate_half_life_ms: int = 10_000  # half life of the rates


@dataclass(frozen=True, slots=True)
class QueueSettings:
    backing: str = "variable"  # default kind of backing queue of a new queue
    memory_watermark_bytes: int = 80 << 20  # memory limit for the messages of all queues
    memory_tick_seconds: float = 1.0  # how often memory targets are recomputed below the watermark
    put_count_max: int = 1 << 16  # a put of more messages is cut: so many are one session …
    put_bytes_max: int = 8 << 20  # … or so many bytes, unless one message is larger
    cleaning_seconds: float = 5.0  # interval of cleaning the message stream
    settle_ms: int = 50  # an acknowledgement without a waiter is durable after so long
    restarts_max: int = 5  # a queue that fails more often …
    restarts_seconds: float = 10.0  # … within so long stays down
