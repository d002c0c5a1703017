"""A program that opens a store and forks: run by test_forked_store.py as `store_to_be_forked.py KIND DIRECTORY`.

The parent writes before and after the fork. The children try every operation, and each writes a file DIRECTORY-<its
process id>.json: which operations returned, and which raised what. `preload` ends its children as gunicorn does: by
`sys.exit`, which unwinds the stack and finalizes the interpreter.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import warren
from warren.base.errors import WarrenError
from warren.base.ids import TimelineId
from warren.embedded.database import Warren
from warren.snapshot.rocksdb.store import RocksDbStore

CHILDREN = 2
KEYS = 200


class Opened:
    """The store and what was got from it before the fork."""

    def __init__(self, db: Warren) -> None:
        self.db = db
        self.users = db.kv("users")
        self.jobs = db.queue("jobs")
        self.jobs.put_many(b"job %d" % number for number in range(3))
        self.message = self.jobs.get()
        self.session = db.database.begin()
        self.session.put(99, b"key", b"value")
        self.moment = db.snapshot()
        self.old = self.moment.kv("users")


def operations(opened: Opened) -> dict[str, Callable[[], Any]]:
    db, users, jobs, message = opened.db, opened.users, opened.jobs, opened.message
    assert message is not None
    return {
        "kv": lambda: db.kv("users"),
        "new kv": lambda: db.kv("new"),
        "names": db.names,
        "setitem": lambda: users.put(b"child", b"child"),
        "put_many": lambda: users.put_many({b"child": b"child"}),
        "put_if": lambda: users.put_if(b"child", b"child", None),
        "delitem": lambda: users.pop(b"parent 0"),
        "getitem": lambda: users[b"parent 0"],
        "range": lambda: list(users.range()),
        "clear": users.clear,
        "snapshot": db.snapshot,
        "read of a snapshot": lambda: opened.old[b"parent 0"],
        "end of a session": opened.session.end,
        "queue": lambda: db.queue("jobs"),
        "new queue": lambda: db.queue("new"),
        "queues": db.queues,
        "publish": lambda: db.publish(b"child", ["jobs"]),
        "put": lambda: jobs.put(b"child"),
        "put_later": lambda: jobs.put_later(b"child"),
        "get": jobs.get,
        "len": lambda: len(jobs),
        "browse": lambda: list(jobs.browse()),
        "ack": message.ack,
        "nack": lambda: jobs.nack(message),
        "purge": jobs.purge,
        "delete": jobs.delete,
        "sync": jobs.sync,
        "facts": jobs.facts,
        "alarms": db.alarms,
        "compact": db.database.log.compact,
        "rotate": db.database.log.rotate,
        "a store of its own": lambda: warren.open(f"{db.database.directory}-{os.getpid()}"),
    }


def in_the_child(opened: Opened) -> None:
    results = {}
    for name, operation in operations(opened).items():
        try:
            operation()
        except WarrenError as error:
            results[name] = [type(error).__name__, str(error)]
        else:
            results[name] = ["returned", ""]
    opened.moment.close()
    opened.db.close()
    opened.db.database.close()
    opened.db.database.log.close()
    opened.db.close()
    Path(f"{opened.db.database.directory}-{os.getpid()}.json").write_text(json.dumps(results), encoding="utf-8")


def write(opened: Opened, first: int) -> None:
    for number in range(first, first + KEYS):
        opened.users[b"parent %d" % number] = b"x" * 500
    opened.jobs.put(b"parent %d" % first)


def preload(opened: Opened) -> None:
    """Fork, end by `sys.exit`: every `with` block of the parent's stack ends in the child too."""
    handles = []
    for _ in range(CHILDREN):
        if not (handle := os.fork()):
            in_the_child(opened)
            sys.exit(7)
        handles.append(handle)
    write(opened, KEYS)
    for handle in handles:
        code = os.waitstatus_to_exitcode(os.waitpid(handle, 0)[1])
        assert code == 7, f"a child ended with {code}"


def processes(opened: Opened) -> None:
    context = multiprocessing.get_context("fork")
    handles = [context.Process(target=in_the_child, args=(opened,)) for _ in range(CHILDREN)]
    for handle in handles:
        handle.start()
    write(opened, KEYS)
    for handle in handles:
        handle.join()
        assert handle.exitcode == 0


def survivor(opened: Opened) -> None:
    """The parent is killed while a child lives on. The child prints its process id and waits for its standard input."""
    if not os.fork():
        print(json.dumps(os.getpid()), flush=True)
        sys.stdin.read()
        os._exit(0)
    os.kill(os.getpid(), 9)


def dropped(directory: str) -> None:
    """A child drops the last reference to a RocksDB that has something to flush."""
    stores = [RocksDbStore.open(directory, TimelineId(1))]
    before = sorted(os.listdir(directory))
    if not (handle := os.fork()):
        stores.clear()
        gc.collect()
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(handle, 0)[1])
    assert code == 7, f"a child ended with {code}"
    assert sorted(os.listdir(directory)) == before
    stores[0].close()


KINDS = {"preload": preload, "processes": processes, "survivor": survivor}


def main(kind: str, directory: str) -> None:
    if kind == "dropped":
        dropped(directory)
        return
    with warren.open(directory) as db, db.snapshot():
        opened = Opened(db)
        write(opened, 0)
        KINDS[kind](opened)


if __name__ == "__main__":
    main(*sys.argv[1:])
