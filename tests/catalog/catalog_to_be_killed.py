"""A process that declares and deletes queues in a real database with a real SQL catalog until it is killed.

It prints "done N" whenever change N was answered (tests/lives). What change N does follows from N.
"""

from __future__ import annotations

import sys

from tests.lives import report, serve
from warren.base.ids import VhostId
from warren.base.threads import SystemThreads
from warren.catalog import bindings, exchanges, parameters, queues, vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.database import place_of
from warren.catalog.rows import RowWriter
from warren.catalog.settings import CatalogSettings
from warren.embedded.database import open_database
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.log.settings import LogSettings
from warren.snapshot.database import Database
from warren.snapshot.reflection import ReflectionSettings
from warren.testing.fakes import SeededRandom

KEPT = 7  # change N deletes what change N - KEPT made
LOG = LogSettings(use_worker_process=False, retention_bytes=0, rotate_bytes=1 << 20)
QUICK = ReflectionSettings(bulk_bytes=0, lag_seconds=0.001, flush_seconds=0.05)


def opened(directory: str, connect: str = "") -> tuple[Database, Catalog]:
    database = open_database(directory, Environment.real(), LOG, QUICK)
    place = place_of(LocalFiles(), SeededRandom(1), directory, CatalogSettings(connect))
    return database, Catalog.open(database, place, SystemThreads())


def make(writer: RowWriter, number: int) -> None:
    """Change N, in one session: a queue with a binding, and the end of an older one."""
    here = vhosts.declare(writer, "/").id
    queue = queues.declare(writer, here, f"q{number}", arguments={"number": number})
    source = exchanges.get(writer.connection, here, "amq.topic")
    assert source is not None
    bindings.bind(writer, source, queue, f"key-{number}")
    parameters.put(writer, here, "policy", "number", {"number": number})
    parameters.put(writer, None, parameters.GLOBAL, "number", number)
    old = queues.get(writer.connection, here, f"q{number - KEPT}")
    if old is not None:
        queues.delete(writer, old.id)


def reached(catalog: Catalog) -> int:
    """The last change that is there; everything of it and of those before must be, and nothing else."""
    with catalog.reading() as connection:
        found = {queue.id: int(queue.name[1:]) for queue in queues.every(connection)}
        last = max(found.values(), default=0)
        assert sorted(found.values()) == list(range(max(1, last - KEPT + 1), last + 1))
        keys = {binding.queue_id: binding.routing_key for binding in bindings.every(connection)}
        assert keys == {id_: f"key-{number}" for id_, number in found.items()}
        for vhost in vhosts.every(connection) if found else ():
            assert [row.value for row in parameters.every(connection, vhost.id)] == [{"number": last}]
            assert [row.value for row in parameters.every(connection, None)] == [last]
        assert len(exchanges.every(connection, VhostId(vhosts.every(connection)[0].id))) == 7 if found else True
    return last


def live(directory: str, connect: str) -> None:
    _, catalog = opened(directory, connect)
    number = reached(catalog)
    while True:
        number += 1
        catalog.change(lambda writer, number=number: make(writer, number))  # type: ignore[misc]
        report("done", number)


if __name__ == "__main__":
    serve(lambda order: live(*sys.argv[1:3]))
