"""A vhost in the loop: its turn, its routes, and which channels wait to be told that their messages are durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from warren.broker.declarations.dispatch import Declarations
from warren.broker.queue_handle import QueueHandle
from warren.broker.realm import Vhost
from warren.broker.request_batch import RequestBatch, RouteCache
from warren.files.environment import Environment
from warren.server.channel import ServerChannel


class ConfirmingChannel(NamedTuple):
    """Messages of one turn whose publisher waits."""

    channel: ServerChannel
    first: int
    last: int


class VhostLoop:
    def __init__(
        self,
        vhost: Vhost,
        declarations: Declarations,
        environment: Environment,
        on_ready: Callable[[VhostLoop], None],
        unused: Callable[[VhostLoop, QueueHandle], None],
    ) -> None:
        """`unused`: have a queue deleted that goes with its last consumer."""
        self.vhost = vhost
        self.declarations = declarations
        self.routes = RouteCache(vhost)
        self.batch = RequestBatch(vhost.queues, environment.clock, lambda: on_ready(self))
        self._unused = unused
        self._confirming: dict[ServerChannel, int] = {}  # and the first of its tags in this turn

    def confirms(self, channel: ServerChannel, first: int) -> None:
        """It has published in this turn, from this tag on, and wants to know what comes of it, also of what no queue
        takes."""
        self._confirming.setdefault(channel, first)
        self.batch.ask()

    def take_confirming(self) -> list[ConfirmingChannel]:
        """Who is to be told, and of which tags."""
        confirming, self._confirming = self._confirming, {}
        return [ConfirmingChannel(channel, first, channel.published) for channel, first in confirming.items()]

    def last_consumer_removed(self, handle: QueueHandle) -> None:
        self._unused(self, handle)
