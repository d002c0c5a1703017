"""What the log keeps in memory: what is not durable yet, and nothing else."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from warren.log.settings import LogSettings
from warren.log.store import LogStore

QUIET = LogSettings(snapshot_at_stop=False, compaction_poll_seconds=3600)
SESSION_BYTES = 1 << 20


def test_nothing_of_a_durable_session_is_kept_in_memory(tmp_path: Path) -> None:
    """OP-11, an alternative not taken (C-37): the log keeps no entries in memory, small or large. What was written is
    read back from the mapped file, and how much of it stays in memory is the page cache's business."""
    with LogStore.open(str(tmp_path), QUIET) as store:
        values = [bytes(1000)] * (SESSION_BYTES // 1000)
        keys = [b"%08d" % number for number in range(len(values))]

        def write(count: int) -> None:
            for _ in range(count):
                with store.begin() as session:
                    session.put_many(1, keys, values)

        write(2)
        tracemalloc.start()
        try:
            write(2)
            before, _ = tracemalloc.get_traced_memory()
            write(20)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < SESSION_BYTES / 2
