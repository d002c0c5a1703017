"""The tables of the catalog, as queries see them. `migrations` makes them; a test compares the two.

    vhosts ◀── exchanges ◀── bindings ──▶ queues ──▶ vhosts
                  ▲             │
                  └─────────────┘ or to another exchange

    users ◀── permissions, topic_permissions ──▶ vhosts

Referential integrity is SQL's: a binding names an exchange and a queue (or a second exchange) of its own vhost, else it
is refused, and it goes with either of them. A vhost goes only when nothing is left in it,
a user only when nothing is permitted to it any more. The exchange of a topic permission is a name: it may come later.

Ids are log positions, 64 bits, never given twice. Texts in `arguments`, `tags`, `limits` and `extra` are JSON in one
spelling; `extra` has what a newer version said about the row. `identity` tells two bindings apart: unique over columns
that may be null, and over arguments of any length, is not to be had otherwise.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()
NOTHING = "{}"


def _id() -> Column[int]:
    return Column("id", BigInteger, primary_key=True, autoincrement=False)


def _number(name: str, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _text(name: str, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=False, default=default)


def _flag(name: str, default: bool) -> Column[bool]:
    return Column(name, Boolean, nullable=False, default=default)


vhosts = Table(
    "vhosts",
    METADATA,
    _id(),
    _text("name"),
    _text("description", ""),
    _text("tags", "[]"),
    _text("extra", NOTHING),
    UniqueConstraint("name"),
)

exchanges = Table(
    "exchanges",
    METADATA,
    _id(),
    _number("vhost_id"),
    _text("name"),
    _text("type"),
    _flag("durable", True),
    _flag("auto_delete", False),
    _flag("internal", False),
    _text("arguments", NOTHING),
    _text("extra", NOTHING),
    ForeignKeyConstraint(["vhost_id"], ["vhosts.id"]),
    UniqueConstraint("vhost_id", "name"),
    UniqueConstraint("vhost_id", "id"),
)

queues = Table(
    "queues",
    METADATA,
    _id(),
    _number("vhost_id"),
    _text("name"),
    _flag("durable", True),
    _flag("exclusive", False),
    _flag("auto_delete", False),
    _text("arguments", NOTHING),
    _text("extra", NOTHING),
    ForeignKeyConstraint(["vhost_id"], ["vhosts.id"]),
    UniqueConstraint("vhost_id", "name"),
    UniqueConstraint("vhost_id", "id"),
)

bindings = Table(
    "bindings",
    METADATA,
    _id(),
    _number("vhost_id"),
    _number("source_id"),
    _number("queue_id", nullable=True),
    _number("exchange_id", nullable=True),
    _text("routing_key", ""),
    _text("arguments", NOTHING),
    _text("identity"),
    _text("extra", NOTHING),
    ForeignKeyConstraint(["vhost_id", "source_id"], ["exchanges.vhost_id", "exchanges.id"], ondelete="CASCADE"),
    ForeignKeyConstraint(["vhost_id", "queue_id"], ["queues.vhost_id", "queues.id"], ondelete="CASCADE"),
    ForeignKeyConstraint(["vhost_id", "exchange_id"], ["exchanges.vhost_id", "exchanges.id"], ondelete="CASCADE"),
    CheckConstraint("(queue_id IS NULL) <> (exchange_id IS NULL)"),
    UniqueConstraint("identity"),
    Index("bindings_by_source", "vhost_id", "source_id"),
    Index("bindings_by_queue", "vhost_id", "queue_id"),
    Index("bindings_by_exchange", "vhost_id", "exchange_id"),
)

users = Table(
    "users",
    METADATA,
    _id(),
    _text("name"),
    _text("password_hash", ""),
    _text("hashing_algorithm", ""),
    _text("tags", "[]"),
    _text("limits", NOTHING),
    _text("extra", NOTHING),
    UniqueConstraint("name"),
)

permissions = Table(
    "permissions",
    METADATA,
    _id(),
    _number("user_id"),
    _number("vhost_id"),
    _text("configure", ""),
    _text("write", ""),
    _text("read", ""),
    _text("extra", NOTHING),
    ForeignKeyConstraint(["user_id"], ["users.id"]),
    ForeignKeyConstraint(["vhost_id"], ["vhosts.id"]),
    UniqueConstraint("user_id", "vhost_id"),
    Index("permissions_by_vhost", "vhost_id"),
)

topic_permissions = Table(
    "topic_permissions",
    METADATA,
    _id(),
    _number("user_id"),
    _number("vhost_id"),
    _text("exchange"),
    _text("write", ""),
    _text("read", ""),
    _text("extra", NOTHING),
    ForeignKeyConstraint(["user_id"], ["users.id"]),
    ForeignKeyConstraint(["vhost_id"], ["vhosts.id"]),
    UniqueConstraint("user_id", "vhost_id", "exchange"),
    Index("topic_permissions_by_vhost", "vhost_id"),
)

# How far the projection has come: one row. The timeline is written as 16 hexadecimal digits, as everywhere.
applied = Table(
    "applied",
    METADATA,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    _text("timeline"),
    _number("epoch"),
)

schema_version = Table(
    "schema_version",
    METADATA,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)
