"""A process to be watched, and to be killed: `python -m tools.bench.snapshot.child ROOM KEYS settled|behind`.

It opens the database, writes KEYS keys, says that it is done, and waits for its end (killed_child).

*Settled*: everything is reflected, read once (gets, a range over all, batches over all) and flushed; then ten thousand
more keys are written and left as they are: what a process has on its way that is killed between two flushes. *Behind*:
it writes as fast as it can, and says so as soon as all is durable, whatever the store has by then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.bench import killed_child
from tools.bench.killed_child import Child, done, get_ready
from tools.bench.snapshot.databases import SESSION_KEYS, STORAGE, flush, keys_of, opened_database, puts, write
from warren.snapshot.database import Database

SETTLED, BEHIND = "settled", "behind"
MORE_SESSIONS = 10
MORE_FROM = 1 << 40  # sessions whose keys are written only here
LOOKUPS = 1000


@contextmanager
def child(room: Path, keys: int, how: str) -> Iterator[Child]:
    """Killed with SIGKILL when the block ends."""
    with killed_child.child("tools.bench.snapshot.child", room, keys, how) as process:
        yield process


def main(room: Path, keys: int, how: str) -> None:
    get_ready()
    with opened_database(room) as database:
        write(database, puts(range(keys // SESSION_KEYS)))
        if how == SETTLED:
            flush(database)
            _read(database, keys)
            write(database, puts(range(MORE_FROM, MORE_FROM + MORE_SESSIONS)))
        done()


def _read(database: Database, keys: int) -> None:
    view = database.view()
    for number in range(min(LOOKUPS, keys // SESSION_KEYS)):
        assert view.get(STORAGE, keys_of(number)[number % SESSION_KEYS]) is not None
    rows = sum(1 for _ in view.range(STORAGE))
    assert rows == sum(batch.count for batch in view.batches(STORAGE)) >= keys // SESSION_KEYS * SESSION_KEYS
    view.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
