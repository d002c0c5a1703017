"""A vhost in the loop: its turn, its routes, and which channels wait to be told that their messages are durable."""

from __future__ import annotations

from collections.abc import Callable

from warren.broker.realm import Realm
from warren.broker.routes import Routes
from warren.broker.supervisor import Supervised
from warren.broker.topology import Topology
from warren.broker.turn import Turn
from warren.log.machine import Machine
from warren.server.channel import ServedChannel


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
        self._confirming: dict[ServedChannel, None] = {}

    def confirms(self, channel: ServedChannel) -> None:
        """It has published in this turn, and wants to know what comes of it, also of what no queue takes."""
        self._confirming[channel] = None
        self.turn.ask()

    def take_confirming(self) -> list[tuple[ServedChannel, int]]:
        """Who is to be told, and up to which tag."""
        confirming, self._confirming = self._confirming, {}
        return [(channel, channel.published) for channel in confirming]

    def last_consumer_left(self, child: Supervised) -> None:
        self._unused(self, child)
