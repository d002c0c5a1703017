"""Counters: events since the start.

`MessageCounters` are plain integers without history or rates: two readings and the time between them give a rate. Only
the event loop's thread counts, in batches, so there is no lock.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MessageCounters:
    connections_opened: int = 0
    connections_closed: int = 0
    channels_opened: int = 0
    channels_closed: int = 0
    queues_declared: int = 0
    queues_created: int = 0
    queues_deleted: int = 0
    received: int = 0  # messages published
    received_bytes: int = 0
    received_confirm: int = 0  # … on channels in confirm mode
    routed: int = 0  # … to one queue at least
    confirmed: int = 0
    refused: int = 0  # nacked
    unroutable_returned: int = 0
    unroutable_dropped: int = 0
    delivered_auto_ack: int = 0
    delivered_manual_ack: int = 0
    got_auto_ack: int = 0
    got_manual_ack: int = 0
    got_empty: int = 0
    redelivered: int = 0
    acknowledged: int = 0
