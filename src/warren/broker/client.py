"""Who is served: a connection, which may own queues, and a channel of it, on which things are asked for.

Neither knows of sockets: AMQP makes one of each for its connections and channels, others may do the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.base.ids import QueueId
from warren.broker.permissions import Access


@dataclass(slots=True, eq=False)
class Owner:
    """A connection. Exclusive queues are its own, and go with it."""

    name: str  # for messages: 127.0.0.1:40312 -> 127.0.0.1:5672
    exclusive: set[QueueId] = field(default_factory=set)
    has_gone: bool = False  # what it has declared meanwhile goes, too


@dataclass(slots=True, eq=False)
class Client:
    """A channel, with what was permitted to its user in its vhost."""

    access: Access
    owner: Owner
    last_queue: str = ""  # declared last: it is meant where a method names none
