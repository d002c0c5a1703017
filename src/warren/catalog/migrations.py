"""How an SQL database becomes what this version reads: numbered steps, each in one transaction, none ever changed.

    schema_version = 3  ──▶ step 4 ──▶ schema_version = 4 ──▶ …

A step is plain SQL that SQLite and PostgreSQL both take. A database of a newer version is refused by name: it may hold
what this one would not keep. (It holds nothing that is not in the log as well, so there is always a way on: name
another catalog, and it is filled from the log.)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert, inspect, select, text, update

from warren.base.errors import Refused
from warren.catalog.schema import schema_version
from warren.catalog.sql_database import SqlDatabase

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
)


def migrate(sql: SqlDatabase, steps: Sequence[Step] = STEPS) -> int:
    """Bring a database to the newest version; the version it had."""
    found = _version(sql)
    if found > len(steps):
        raise Refused(
            f"the SQL catalog {sql.where} is of version {found}, this version of warren reads up to {len(steps)}",
            "use the version that wrote it, or name another catalog: it is filled from the log",
        )
    for number, step in enumerate(steps[found:], found + 1):
        with sql.transaction() as connection:
            for statement in step:
                connection.execute(text(statement))
            connection.execute(update(schema_version).values(version=number))
    return found


def _version(sql: SqlDatabase) -> int:
    with sql.transaction() as connection:
        if not inspect(connection).has_table(schema_version.name):
            schema_version.create(connection)
            connection.execute(insert(schema_version).values(id=1, version=0))
        return int(connection.execute(select(schema_version.c.version)).scalar_one())
