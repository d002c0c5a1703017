"""Rows about many queues that share one watermark: a thousand queues, 200 MB, four times as much put.

    watermark_high       the most that messages took, as the queues count it     beside the watermark: at most 1.1
    watermark_low        the least, once something was paged                     beside the watermark: at least 0.9
    watermark_resident   the most memory the process had, above what it had when every queue had one message
    watermark_anonymous  what it allocated of that: no pages of mapped files

It runs in a process of its own (queue_watermark_child), which is watched from outside and killed in the end.
The processes that make tables for the store are left out: no queue's messages are in them.
"""

from __future__ import annotations

from tools.bench.killed_child import child
from tools.bench.measurement import Figure
from tools.bench.memory_watch import watched_tree
from tools.bench.queue.child import MODULE
from tools.bench.run import BenchRun, Figures

QUEUES = 1000
WATERMARK_BYTES = 200_000_000
TIMES = 4  # the watermark is put
WATERMARK_ROW_NAMES = ("watermark_high", "watermark_low", "watermark_resident", "watermark_anonymous")
_MEGABYTE = 1_000_000
_MEGABYTES_A_MIB = (1 << 20) / _MEGABYTE


def watermark_rows(run: BenchRun) -> Figures:
    run.began("watermark_high")
    limit = watermark_for(run.entries)
    queues = max(2, QUEUES * limit // WATERMARK_BYTES)
    with run.room() as room, child(MODULE, "watermark", room, queues, limit, TIMES) as process:
        with watched_tree(process.pid) as peak:
            base, anonymous_base = peak.own, peak.own_anonymous
            readings = process.do()
        assert process.do()["compared"] > 0, "the process ends if a check fails"
    megabytes = limit / _MEGABYTE
    yield Figure("watermark_high", readings["high"] / _MEGABYTE, "MB", megabytes)
    yield Figure("watermark_low", readings["low"] / _MEGABYTE, "MB", megabytes)
    yield Figure("watermark_resident", (peak.own - base) * _MEGABYTES_A_MIB, "MB", megabytes)
    anonymous = (peak.own_anonymous - anonymous_base) * _MEGABYTES_A_MIB
    yield Figure("watermark_anonymous", anonymous, "MB", megabytes)


def watermark_for(messages: int) -> int:
    """The whole one from half a million messages on; fewer make everything smaller, the number of queues too."""
    return min(WATERMARK_BYTES, messages * 400)
