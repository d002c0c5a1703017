"""A process that writes numbered batches to a database in mode `watch` until it is killed, or its puller.

It prints "puller N" of each puller, and "done N" when batch N is durable (tests/lives). What N holds follows from N.
"""

from __future__ import annotations

import os
import random
import sys

from tests.lives import report, serve
from tests.pipeline.histories import Change, fill
from tests.snapshot.watch_stage import opened, puller_client
from warren.embedded.database import Warren

COUNTED = (9, b"batch")  # storage and key of the number of the last batch


def batch_of(number: int) -> list[Change]:
    rng = random.Random(number)
    changes = list[Change]()
    for _ in range(12):
        storage, key = rng.randrange(1, 4), b"%03d" % rng.randrange(150)
        if rng.random() < 0.7:
            changes.append(("put", storage, key, b"%d." % number + rng.randbytes(rng.randrange(200))))
        else:
            changes.append(("remove", storage, key, b""))
    if rng.random() < 0.05:
        changes.append(("clear_storage", rng.randrange(1, 4), b"", b""))
    changes.append(("put", *COUNTED, b"%d" % number))
    return changes


def last_batch(db: Warren) -> int:
    view = db.database.view_now()
    found = view.get(*COUNTED)
    view.close()
    return int(found.value) if found else 0


def live(directory: str) -> None:
    db = opened(directory)
    rng, puller = random.Random(os.getpid()), 0
    number = last_batch(db)
    while True:
        if puller_client(db).puller_pid != puller:
            puller = puller_client(db).puller_pid
            report("puller", puller)
        number += 1
        session = db.database.begin()
        fill(session, batch_of(number))
        session.commit()
        report("done", number)
        if rng.random() < 0.02:
            db.database.log.rotate()
            db.database.log.purge()


if __name__ == "__main__":
    serve(lambda order: live(sys.argv[1]))
