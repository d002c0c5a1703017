"""`warren bench queue`: which rows there are, and which scenario makes them; docs/benchmarks.md says what they mean.

Rows about a size of backlog have it in their name, so which rows there are depends on `--messages`. Goals are
only of rows that are always there.
"""

from __future__ import annotations

from tools.bench.queue.backlog import backlog_row_names, backlog_rows
from tools.bench.queue.disk import DISK_ROW_NAMES, disk_rows
from tools.bench.queue.fan_out import FAN_OUT_ROW_NAMES, fan_out_rows
from tools.bench.queue.peer_rows import large_peer_row_names, large_peer_rows, peer_row_names, peer_rows
from tools.bench.queue.priorities import PRIORITY_ROW_NAMES, priority_rows
from tools.bench.queue.single import large_single_rows, single_row_names, single_rows
from tools.bench.queue.throughput import large_throughput_rows, throughput_row_names, throughput_rows
from tools.bench.queue.watermark import WATERMARK_ROW_NAMES, watermark_rows
from tools.bench.run import BenchRun
from tools.bench.suite import Suite

ROOM_BYTES_PER_MESSAGE = 1600  # four times --messages of 100 bytes, twice over: log, and what is carried into the store


def queue_suite(messages: int) -> Suite[BenchRun]:
    return Suite(
        {
            throughput_rows: throughput_row_names(),
            single_rows: single_row_names(),
            peer_rows: peer_row_names(),
            large_throughput_rows: throughput_row_names(is_large=True),
            large_single_rows: single_row_names(is_large=True),
            large_peer_rows: large_peer_row_names(),
            fan_out_rows: FAN_OUT_ROW_NAMES,
            priority_rows: PRIORITY_ROW_NAMES,
            backlog_rows: backlog_row_names(messages),
            watermark_rows: WATERMARK_ROW_NAMES,
            disk_rows: DISK_ROW_NAMES,
        }
    )
