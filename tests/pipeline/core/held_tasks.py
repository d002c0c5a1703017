"""Tasks that stand still in the middle of their work until the test releases them, so that it can inspect the
processes that do them, or kill one.

    with held(frame, folder, tasks=2) as result:      two tasks have read their rows' first batch and wait
        …                                             worker_pids(folder): the Python processes they run in
    result()                                          the rows, when all is done

A task says where it is with a file named after its process; the file `go` lets all of them on, also those that are
done a second time.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.pipeline.process_group import PATIENCE_SECONDS, wait_until

GO = "go"


@contextmanager
def held(frame: Any, folder: Path, tasks: int) -> Iterator[Callable[[], list[Any]]]:
    """Collect the frame in a thread. The block begins when so many tasks stand still and its end lets them go on."""
    rows: list[Any] = []
    errors: list[BaseException] = []
    held_frame = frame.mapInArrow(_holding(str(folder)), frame.schema)

    def collect() -> None:
        try:
            rows.extend(held_frame.collect())
        except BaseException as error:
            errors.append(error)

    def result() -> list[Any]:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "the job has not ended"
        if errors:
            raise errors[0]
        return rows

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    try:
        wait_until(f"{tasks} held tasks", lambda: bool(errors) or len(worker_pids(folder)) >= tasks)
        yield result
    finally:
        (folder / GO).touch()


def worker_pids(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.held")]


def jvm_of(worker_pid: int) -> int:
    """The JVM a Python worker works for: its parent is the daemon that forks workers, whose parent is the JVM."""
    return _parent_of(_parent_of(worker_pid))


def _parent_of(pid: int) -> int:
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)


def _holding(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for Spark: made here, so that it travels by value; workers elsewhere have no `tests` to import."""

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import threading

        pause = threading.Event()
        for batch in batches:
            with open(os.path.join(folder, f"{os.getpid()}.held"), "w", encoding="ascii"):
                while not os.path.exists(os.path.join(folder, "go")):
                    pause.wait(0.02)
            yield batch

    return hold
