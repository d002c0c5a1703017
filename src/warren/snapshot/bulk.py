"""The reflection's way for a large backlog: a table of it is made elsewhere, and ingested in one step.

    backlog < bulk_bytes      the thread's own way: version buffer, batches (reflection)
    backlog ≥ bulk_bytes      task ──▶ table worker ──▶ table ──▶ store.ingest, with the mark ──▶ on disk at once

Both bring the same entries in the same order to the same mark, so either can follow the other at any step. The table's
way is only for epochs that nobody has read into the buffer yet, and for a store nothing of which can be offered again.
What does not fit (a writer gave versions of his own, table_tasks) is left to the other way.

Always true: the mark moves with the table or not at all. A crash before that leaves a file in `tables/` that nobody
knows; opening clears it.
"""

from __future__ import annotations

from collections.abc import Callable

from warren.base.chance import Chance
from warren.base.ids import Epoch, TimelineId
from warren.files.protocol import Files, join
from warren.log.jobs import clear_staging
from warren.log.tail import LogTail
from warren.snapshot.applied import MINOR_MAX, Applied, Version
from warren.snapshot.snapshot_store import SnapshotStore
from warren.snapshot.table_tasks import TableMade, TableTask
from warren.snapshot.table_worker import TableMaker


class Bulk:
    def __init__(
        self,
        files: Files,
        chance: Chance,
        home: str,
        log_directory: str,
        timeline: TimelineId,
        tail: LogTail,
        store: SnapshotStore,
        maker: TableMaker,
        least_bytes: int,
        step_bytes: int,
    ) -> None:
        self._files = files
        self._chance = chance
        self._home = home
        self._log_directory = log_directory
        self._timeline = timeline
        self._tail = tail
        self._store = store
        self._maker = maker
        self._least_bytes = least_bytes
        self._step_bytes = step_bytes
        self._unfit = Epoch(0)  # up to here the other way is taken
        clear_staging(files, home)
        files.make_directories(home)

    def bring(self, durable: Epoch, safe_at: Callable[[Epoch], Version]) -> Applied | None:
        """One step towards the durable epoch; the mark that is on disk behind it. None: it is for the other way."""
        if not self._may_begin() or self._tail.waiting_bytes(durable, self._least_bytes) < self._least_bytes:
            return None
        after, up_to = self._tail.after, self._tail.epoch_within(durable, self._step_bytes)
        path = join(self._home, f"{self._chance.id64():016x}.table")
        places = tuple(sorted(self._tail.places.items()))
        made = self._maker.make(TableTask(self._log_directory, path, after, up_to, places))
        mark = Applied(self._timeline, up_to, max(safe_at(up_to), self._store.applied.version))
        if not made.fits(self._store.applied.version, mark.version):
            self._unfit = up_to
            self._clear(path)
            return None
        self._ingest(made, mark)
        self._tail.skip(up_to, dict(made.places))
        return mark

    def rest(self) -> None:
        self._maker.rest()

    def _may_begin(self) -> bool:
        """Nothing is in the buffer, nothing in the store is to be offered again, and versions follow the epochs."""
        after, applied = self._tail.after, self._store.applied
        is_plain = applied.epoch == after and applied.version <= (after, MINOR_MAX)
        return is_plain and after >= self._unfit and self._store.is_settled

    def _ingest(self, made: TableMade, mark: Applied) -> None:
        figures = made.figures
        try:
            self._store.ingest([figures.path] if figures.has_file else [], mark, cleared=figures.cleared)
        except BaseException:
            self._clear(figures.path)
            raise

    def _clear(self, path: str) -> None:
        if self._files.exists(path):
            self._files.remove(path)
