"""Channel-wide prefetch (`basic.qos` with `global`): one limit on the unacked deliveries of a channel's consumers.

    room ──▶ limit reached: the consumer joins the waiting line
    ack  ──▶ free credits are granted to the line, first come first served ──▶ those queues deliver in the next batch
                                             └──▶ behind that batch: credits that were not used are granted again

A queue with messages cannot take all credits while another one waits: a grant is reserved for one batch. A consumer
without acknowledgements takes no credit, but waits while there is none, as in RabbitMQ. Messages that were got
(`basic.get`) do not count.

Invariants: `unacked` and the grants change in the loop's thread only; other threads may call `room`, which adds to the
line by one atomic operation. The cost of an ack does not grow with the number of consumers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.server.consumer import ServerConsumer


class SharedPrefetch:
    __slots__ = (
        "_call_soon",
        "_granted",
        "_grants",
        "_is_round_open",
        "_schedule_delivery",
        "_waiting",
        "limit",
        "unacked",
    )

    def __init__(
        self,
        schedule_delivery: Callable[[ServerConsumer], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`schedule_delivery`: serve the consumer's queue in the next batch. `call_soon`: call behind that batch."""
        self.limit = 0  # 0: none
        self.unacked = 0  # deliveries of consumers, whether there is a limit or not
        self._schedule_delivery = schedule_delivery
        self._call_soon = call_soon
        self._waiting: OrderedDict[ServerConsumer, None] = OrderedDict()
        self._grants: dict[ServerConsumer, int] = {}
        self._granted = 0
        self._is_round_open = False

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self._waiting.clear()
        self._drop_grants()

    def room(self, consumer: ServerConsumer) -> int:
        """Credits that this consumer may use now. Called for consumers of queues with ready messages."""
        room = self._room(consumer)
        if room <= 0:
            self._waiting[consumer] = None
            room = self._room(consumer)  # credits may have been released before the line had this entry
        return max(room, 0)

    def delivered(self, consumer: ServerConsumer, count: int) -> None:
        self.unacked += count
        if consumer in self._grants:
            used = min(count, self._grants[consumer])
            self._grants[consumer] -= used
            self._granted -= used

    def settled(self, count: int) -> None:
        self.unacked -= count

    def remove(self, consumer: ServerConsumer) -> None:
        self._waiting.pop(consumer, None)
        self._granted -= self._grants.pop(consumer, 0)
        self.grant()

    def grant(self) -> None:
        """Reserve free credits for waiting consumers, an equal share for each."""
        free = self.limit - self.unacked - self._granted
        if free <= 0 or not self._waiting:
            return
        share = max(free // len(self._waiting), 1)
        while free > 0 and self._waiting:
            consumer, _ = self._waiting.popitem(last=False)
            credits_ = min(share, free)
            self._grants[consumer] = self._grants.get(consumer, 0) + credits_
            self._granted += credits_
            free -= credits_
            self._schedule_delivery(consumer)
        if not self._is_round_open:
            self._is_round_open = True
            self._call_soon(self._end_round)

    def _end_round(self) -> None:
        self._is_round_open = False
        self._drop_grants()
        self.grant()

    def _drop_grants(self) -> None:
        self._grants.clear()
        self._granted = 0

    def _room(self, consumer: ServerConsumer) -> int:
        return self.limit - self.unacked - self._granted + self._grants.get(consumer, 0)
