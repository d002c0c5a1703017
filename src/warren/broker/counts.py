"""What has happened since the start, in plain integers: whoever does it counts, by batches, and whoever asks adds up.

There is no history here and no rate: two looks and the time between them make one. All are counted by the loop's own
thread, so that nothing is locked.
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
