"""A process that writes numbered batches to a database in mode `watch` until somebody kills it, or its puller.

It tells "puller N" of each puller, and "told N" when batch N is durable (tests/lives). What N holds follows from N.
"""

from __future__ import annotations

import os
import random
import sys

from tests.lives import say, serve
from tests.pipeline.histories import Change, fill
from tests.snapshot.watch_stage import opened, outside
from warren.embedded.database import Warren

COUNTED = (9, b"batch")  # storage and key of the number of the last batch


def batch_of(number: int) -> list[Change]:
    chance = random.Random(number)
    changes = list[Change]()
    for _ in range(12):
        storage, key = chance.randrange(1, 4), b"%03d" % chance.randrange(150)
        if chance.random() < 0.7:
            changes.append(("put", storage, key, b"%d." % number + chance.randbytes(chance.randrange(200))))
        else:
            changes.append(("remove", storage, key, b""))
    if chance.random() < 0.05:
        changes.append(("clear_storage", chance.randrange(1, 4), b"", b""))
    changes.append(("put", *COUNTED, b"%d" % number))
    return changes


def last_batch(db: Warren) -> int:
    view = db.database.view_now()
    found = view.get(*COUNTED)
    view.close()
    return int(found.value) if found else 0


def live(directory: str) -> None:
    db = opened(directory)
    chance, puller = random.Random(os.getpid()), 0
    number = last_batch(db)
    while True:
        if outside(db).puller_pid != puller:
            puller = outside(db).puller_pid
            say("puller", puller)
        number += 1
        session = db.database.begin()
        fill(session, batch_of(number))
        session.commit()
        say("told", number)
        if chance.random() < 0.02:
            db.database.log.rotate()
            db.database.log.purge()


if __name__ == "__main__":
    serve(lambda order: live(sys.argv[1]))
