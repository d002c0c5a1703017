"""Contents of the golden broker directories: topology, and for each queue the messages that a consumer receives.

    QUEUES, EXCHANGES, BINDINGS     declarations, by name
    contents()                      queue → messages, in delivery order, after a clean stop

`make_broker_directories` writes them, `test_broker_directories` expects them. Bodies repeat `<queue>-<number> `:
they compress to almost nothing, and each one differs from all others.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

USER, PASSWORD = "ada", "countess of Lovelace"
PAGED_COUNT = 17_000  # more than one read of 16384 positions; 18.7 MB are more than the 16 MiB watermark
PAGED_BYTES = 1_100
EMBEDDED_BYTES, STORED_BYTES = 300, 6_000  # below and above `queue_index_embed_msgs_below`
LARGE_SIZES = (4_095, 4_096, 70_000, 600_000, 1_300_000)  # the message store cuts contents into chunks of 512 KiB
PRIORITY_MAX = 5
LENGTH_MAX = 10

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "priority": {"x-max-priority": PRIORITY_MAX},
    "paged": {},
    "sql": {"x-backing": "sql"},
    "sql.priority": {"x-backing": "sql", "x-max-priority": PRIORITY_MAX},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 20},
    "large": {},
    "fan.a": {},
    "fan.b": {},
    "fan.c": {},
    "dead": {},
    "bounded": {
        "x-dead-letter-exchange": "graves",
        "x-dead-letter-routing-key": "fallen",
        "x-max-length": LENGTH_MAX,
    },
    "expiring": {"x-dead-letter-exchange": "graves", "x-dead-letter-routing-key": "fallen", "x-message-ttl": 1},
    "rejecting": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expiring"},
    "europe": {},
    "red": {},
    "unrouted": {},
}
TRANSIENT_QUEUE = "fleeting"  # not durable: missing after every restart
EXCHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "fan": ("fanout", {}),
    "graves": ("direct", {}),
    "orders": ("topic", {"alternate-exchange": "lost"}),
    "colours": ("headers", {}),
    "lost": ("fanout", {}),
    "everything": ("fanout", {}),
}


class Binding(NamedTuple):
    source: str
    destination: str
    key: str = ""
    arguments: dict[str, Any] | None = None
    is_to_exchange: bool = False


BINDINGS = [
    Binding("fan", "fan.a"),
    Binding("fan", "fan.b"),
    Binding("fan", "fan.c"),
    Binding("graves", "dead", "fallen"),
    Binding("orders", "europe", "europe.#"),
    Binding("colours", "red", "", {"x-match": "all", "colour": "red"}),
    Binding("lost", "unrouted"),
    Binding("everything", "orders", "", None, is_to_exchange=True),
    Binding("everything", "colours", "", None, is_to_exchange=True),
]


class Death(NamedTuple):
    """One entry of `x-death`, newest first; its `time` lies within the making of the archive."""

    queue: str
    reason: str
    exchange: str
    routing_key: str
    times: int = 1


class Message(NamedTuple):
    """A message as a consumer receives it; `properties` are those of pika."""

    body: bytes
    properties: dict[str, Any]
    deaths: tuple[Death, ...] = ()
    redelivered: bool = False


def body_of(name: str, number: int, size_bytes: int) -> bytes:
    unit = b"%s-%06d " % (name.encode(), number)
    return (unit * (size_bytes // len(unit) + 1))[:size_bytes]


def message(name: str, number: int, size_bytes: int = EMBEDDED_BYTES, **properties: Any) -> Message:
    return Message(body_of(name, number, size_bytes), properties)


def plain(number: int) -> Message:
    """With every property that a publisher may set, except `expiration` and `priority`."""
    return message(
        "plain",
        number,
        content_type="text/plain",
        content_encoding="utf-8",
        correlation_id=f"correlation-{number}",
        reply_to="replies",
        message_id=f"message-{number}",
        timestamp=1_700_000_000 + number,
        type="golden",
        app_id="maker",
        headers={
            "number": number,
            "nested": {"list": [1, "two", True, None]},
            "bytes": b"\0\xff",
            "share": Decimal("0.5"),
        },
    )


def prioritised(name: str, number: int) -> Message:
    """Some priorities are above the queue's maximum."""
    return message(name, number, priority=number % (PRIORITY_MAX + 2))


def by_priority(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda each: -min(each.properties["priority"], PRIORITY_MAX))


def redelivered(messages: list[Message]) -> list[Message]:
    return [each._replace(redelivered=True) for each in messages]


def dead(name: str, number: int, *deaths: Death) -> Message:
    return message(name, number)._replace(deaths=deaths)


def contents() -> dict[str, list[Message]]:
    """Acked messages are missing, requeued and unacked ones are flagged; see `make_broker_directories`."""
    plains = [plain(number) for number in range(5, 40)]
    fans = [message("fan", number, STORED_BYTES) for number in range(12)] + [message("fan", 12, LARGE_SIZES[-1])]
    sorted_by_priority = by_priority([prioritised("priority", number) for number in range(30)])
    quorum = [message("quorum", number) for number in range(6)]
    overlong = Death("bounded", "maxlen", "", "bounded")
    rejected = Death("bounded", "rejected", "", "bounded")
    expired = Death("expiring", "expired", "", "expiring")
    return {
        **{name: [] for name in QUEUES},
        "plain": redelivered(plains[:3]) + plains[3:],
        "priority": redelivered(sorted_by_priority[4:5]) + sorted_by_priority[5:],
        "paged": [message("paged", number, PAGED_BYTES) for number in range(PAGED_COUNT)],
        "sql": [message("sql", number, STORED_BYTES) for number in range(3, 20)],
        "sql.priority": by_priority([prioritised("sql.priority", number) for number in range(14)])[2:],
        "quorum": redelivered(quorum[:1]) + quorum[1:],
        "large": [message("large", number, size) for number, size in enumerate(LARGE_SIZES)],
        "fan.a": fans[4:],
        "fan.b": redelivered(fans[:2]) + fans[2:],
        "fan.c": fans[10:],
        "bounded": [message("bounded", number) for number in range(4, LENGTH_MAX + 2)],
        "dead": [
            *(dead("bounded", number, overlong) for number in range(2)),
            *(dead("bounded", number, rejected) for number in range(2, 4)),
            *(dead("expiring", number, expired) for number in range(3)),
            dead("rejecting", 0, expired, Death("rejecting", "rejected", "", "rejecting")),
        ],
        "europe": [message("europe", 0)],
        "red": [message("red", 0, headers={"colour": "red"})],
        "unrouted": [message("unrouted", 0), message("red", 0, headers={"colour": "red"})],
    }
