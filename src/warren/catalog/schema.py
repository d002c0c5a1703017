"""Schema: the SQL tables of the catalog, and the migrations that create them. A test compares the two.

    vhosts ◀── exchanges ◀── bindings ──▶ queues ──▶ vhosts
                  ▲             │
                  └─────────────┘ or to another exchange

    users ◀── permissions, topic_permissions ──▶ vhosts ◀── parameters, unless they are global

SQL enforces referential integrity: a binding names an exchange and a queue (or a second exchange) of its own vhost, and
is deleted with either. A vhost can be deleted only when it is empty, a user only when it has no permissions. The
exchange of a topic permission is a name: the exchange may be declared later.

Ids are log positions, 64 bits, never used twice. Texts in `arguments`, `tags`, `limits`, `value` and `extra` are JSON
in one spelling; `extra` has the fields of a newer version. `identity` is unique for each binding and each parameter:
SQL has no unique constraint over nullable columns (two nulls differ) and over arguments of any length.

Migrations are numbered steps, each in one transaction, never changed after a release:

    schema_version = 3  ──▶ step 4 ──▶ schema_version = 4 ──▶ …

A step is plain SQL for both SQLite and PostgreSQL. A database of a newer version is refused: this version would lose
what it added. All of it is in the log as well, so another catalog can be named, and is filled from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    insert,
    inspect,
    select,
    text,
    update,
)

from warren.base.errors import Refused
from warren.catalog.sql import SqlDatabase

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

parameters = Table(
    "parameters",
    METADATA,
    _id(),
    _number("vhost_id", nullable=True),
    _text("component"),
    _text("name"),
    _text("value"),
    _text("identity"),
    _text("extra", NOTHING),
    ForeignKeyConstraint(["vhost_id"], ["vhosts.id"]),
    UniqueConstraint("identity"),
    Index("parameters_by_vhost", "vhost_id"),
)

# The last change that SQL has: one row. The timeline is written as 16 hexadecimal digits, as everywhere.
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


Step = Sequence[str]

STEPS: tuple[Step, ...] = (
    (
        """CREATE TABLE vhosts (
            id BIGINT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            description TEXT NOT NULL,
            tags TEXT NOT NULL,
            extra TEXT NOT NULL,
            UNIQUE (name)
        )""",
        """CREATE TABLE exchanges (
            id BIGINT NOT NULL PRIMARY KEY,
            vhost_id BIGINT NOT NULL REFERENCES vhosts (id),
            name TEXT NOT NULL,
            type TEXT NOT NULL,
            durable BOOLEAN NOT NULL,
            auto_delete BOOLEAN NOT NULL,
            internal BOOLEAN NOT NULL,
            arguments TEXT NOT NULL,
            extra TEXT NOT NULL,
            UNIQUE (vhost_id, name),
            UNIQUE (vhost_id, id)
        )""",
        """CREATE TABLE queues (
            id BIGINT NOT NULL PRIMARY KEY,
            vhost_id BIGINT NOT NULL REFERENCES vhosts (id),
            name TEXT NOT NULL,
            durable BOOLEAN NOT NULL,
            exclusive BOOLEAN NOT NULL,
            auto_delete BOOLEAN NOT NULL,
            arguments TEXT NOT NULL,
            extra TEXT NOT NULL,
            UNIQUE (vhost_id, name),
            UNIQUE (vhost_id, id)
        )""",
        """CREATE TABLE bindings (
            id BIGINT NOT NULL PRIMARY KEY,
            vhost_id BIGINT NOT NULL,
            source_id BIGINT NOT NULL,
            queue_id BIGINT,
            exchange_id BIGINT,
            routing_key TEXT NOT NULL,
            arguments TEXT NOT NULL,
            identity TEXT NOT NULL,
            extra TEXT NOT NULL,
            FOREIGN KEY (vhost_id, source_id) REFERENCES exchanges (vhost_id, id) ON DELETE CASCADE,
            FOREIGN KEY (vhost_id, queue_id) REFERENCES queues (vhost_id, id) ON DELETE CASCADE,
            FOREIGN KEY (vhost_id, exchange_id) REFERENCES exchanges (vhost_id, id) ON DELETE CASCADE,
            CHECK ((queue_id IS NULL) <> (exchange_id IS NULL)),
            UNIQUE (identity)
        )""",
        "CREATE INDEX bindings_by_source ON bindings (vhost_id, source_id)",
        "CREATE INDEX bindings_by_queue ON bindings (vhost_id, queue_id)",
        "CREATE INDEX bindings_by_exchange ON bindings (vhost_id, exchange_id)",
        """CREATE TABLE applied (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            timeline TEXT NOT NULL,
            epoch BIGINT NOT NULL
        )""",
    ),
    (
        """CREATE TABLE users (
            id BIGINT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            password_hash TEXT NOT NULL,
            hashing_algorithm TEXT NOT NULL,
            tags TEXT NOT NULL,
            limits TEXT NOT NULL,
            extra TEXT NOT NULL,
            UNIQUE (name)
        )""",
        """CREATE TABLE permissions (
            id BIGINT NOT NULL PRIMARY KEY,
            user_id BIGINT NOT NULL REFERENCES users (id),
            vhost_id BIGINT NOT NULL REFERENCES vhosts (id),
            configure TEXT NOT NULL,
            write TEXT NOT NULL,
            read TEXT NOT NULL,
            extra TEXT NOT NULL,
            UNIQUE (user_id, vhost_id)
        )""",
        "CREATE INDEX permissions_by_vhost ON permissions (vhost_id)",
        """CREATE TABLE topic_permissions (
            id BIGINT NOT NULL PRIMARY KEY,
            user_id BIGINT NOT NULL REFERENCES users (id),
            vhost_id BIGINT NOT NULL REFERENCES vhosts (id),
            exchange TEXT NOT NULL,
            write TEXT NOT NULL,
            read TEXT NOT NULL,
            extra TEXT NOT NULL,
            UNIQUE (user_id, vhost_id, exchange)
        )""",
        "CREATE INDEX topic_permissions_by_vhost ON topic_permissions (vhost_id)",
    ),
    (
        """CREATE TABLE parameters (
            id BIGINT NOT NULL PRIMARY KEY,
            vhost_id BIGINT REFERENCES vhosts (id),
            component TEXT NOT NULL,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            identity TEXT NOT NULL,
            extra TEXT NOT NULL,
            UNIQUE (identity)
        )""",
        "CREATE INDEX parameters_by_vhost ON parameters (vhost_id)",
    ),
)


def migrate(sql: SqlDatabase, steps: Sequence[Step] = STEPS) -> int:
    """Migrate a database to the newest version; returns the version it had."""
    version = _version(sql)
    if version > len(steps):
        raise Refused(
            f"the SQL catalog {sql.where} is of version {version}, this version of warren reads up to {len(steps)}",
            "use the version that wrote it, or name another catalog: it is filled from the log",
        )
    for number, step in enumerate(steps[version:], version + 1):
        with sql.transaction() as connection:
            for statement in step:
                connection.execute(text(statement))
            connection.execute(update(schema_version).values(version=number))
    return version


def _version(sql: SqlDatabase) -> int:
    with sql.transaction() as connection:
        if not inspect(connection).has_table(schema_version.name):
            schema_version.create(connection)
            connection.execute(insert(schema_version).values(id=1, version=0))
        return int(connection.execute(select(schema_version.c.version)).scalar_one())
