"""A vhost in the loop: its turn, its routes, and which channels wait to be told that their messages are durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from warren.broker.realm import Realm
from warren.broker.routes import Routes
from warren.broker.supervisor import Supervised
from warren.broker.topology import Topology
from warren.broker.turn import Turn
from warren.log.machine import Machine
from warren.server.channel import ServedChannel


class Confirming(NamedTuple):
    """Messages of one turn whose publisher waits."""

    channel: ServedChannel
    first: int
    last: int


class ServedRealm:
    def __init__(
        self,
        realm: Realm,
        topology: Topology,
        machine: Machine,
        wake: Callable[[ServedRealm], None],
        unused: Callable[[ServedRealm, Supervised], None],
    ) -> None:
        """`unused`: have a queue deleted that goes with its last consumer."""
        self.realm = realm
        self.topology = topology
        self.routes = Routes(realm)
        self.turn = Turn(realm.queues, machine.clock, lambda: wake(self))
        self._unused = unused
        self._confirming: dict[ServedChannel, int] = {}  # and the first of its tags in this turn

    def confirms(self, channel: ServedChannel, first: int) -> None:
        """It has published in this turn, from this tag on, and wants to know what comes of it, also of what no queue
        takes."""
        self._confirming.setdefault(channel, first)
        self.turn.ask()

    def take_confirming(self) -> list[Confirming]:
        """Who is to be told, and of which tags."""
        confirming, self._confirming = self._confirming, {}
        return [Confirming(channel, first, channel.published) for channel, first in confirming.items()]

    def last_consumer_left(self, child: Supervised) -> None:
        self._unused(self, child)
