"""Counters: events since the start.

`MessageCounters` (of the broker) and `QueueCounters` (of one queue) are plain integers without history or rates: two
readings and the time between them give a rate (`management.statistics`). Only the event loop's thread counts, in
batches, so there is no lock.
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

    def add_unroutable(self, count: int, is_returned: bool) -> None:
        if is_returned:
            self.unroutable_returned += count
        else:
            self.unroutable_dropped += count

    def add_created(self, queues: int) -> None:
        self.queues_created += queues


class QueueCounters:
    """Messages of one queue since it was started, by the names of RabbitMQ's statistics. Restarts of the queue after a
    failure keep them."""

    __slots__ = ("ack", "deliver", "deliver_no_ack", "get", "get_empty", "get_no_ack", "publish", "redeliver")

    def __init__(self) -> None:
        self.publish = 0  # routed to the queue
        self.deliver = self.deliver_no_ack = 0
        self.get = self.get_no_ack = self.get_empty = 0
        self.redeliver = 0
        self.ack = 0

    def add_published(self, count: int) -> None:
        self.publish += count

    def add_delivered(self, count: int, is_auto_ack: bool, is_redelivered: bool) -> None:
        if is_auto_ack:
            self.deliver_no_ack += count
        else:
            self.deliver += count
        if is_redelivered:
            self.redeliver += count

    def add_fetched(self, count: int, is_auto_ack: bool, is_redelivered: bool) -> None:
        """The result of a `get`. 0: the queue was empty."""
        if not count:
            self.get_empty += 1
        elif is_auto_ack:
            self.get_no_ack += count
        else:
            self.get += count
        if is_redelivered:
            self.redeliver += count

    def add_acknowledged(self, count: int) -> None:
        self.ack += count
