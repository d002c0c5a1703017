"""Who makes tables of the log for the reflection: a niced process of its own, which stays for the next one.

    owner     one task a line        ──stdin──▶   worker: reads the log, writes a table
              {"result" | "error"}   ◀─stdout──

Making rows of a backlog costs as much processor time as writing it did, and in our own process it would be time that
writers do not have: one thread of Python runs at a time. So a large backlog is a worker's, and the owner ingests.

The worker holds no lock and edits nothing. It is started when it is first needed, ends when its standard input does,
and may be killed at any moment: the task is then an error, and is given again.

The table worker's own side: `python -m warren.snapshot.tables.workers` answers tasks until its input ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from warren.base.errors import DiskFailure
from warren.files.local import LocalFiles
from warren.log.workers import KEEP_MEMORY, NICENESS, error_from_json, error_to_json, read_line, say
from warren.snapshot.tables.tasks import TableResult, TableTask, make_table


class TableMaker(Protocol):
    def make(self, task: TableTask) -> Sequence[TableResult]:
        """A table of the task's entries, or several of its key ranges, at the task's path or under names that begin
        with it."""
        ...

    def rest(self) -> None:
        """Nothing is to be made for a while: let go of what it costs to be ready."""
        ...


class ProcessTables:
    """Is a `TableMaker`. One task at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def make(self, task: TableTask) -> Sequence[TableResult]:
        process = self._process = self._process or _started()
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):  # it has died: then it has no answer either
            process.stdin.write(json.dumps(task.to_json()).encode() + b"\n")
            process.stdin.flush()
        told = read_line(process.stdout.readline())
        if "result" in told:
            return [TableResult.from_json(told["result"])]
        if "error" in told:
            raise error_from_json(told["error"])
        self.rest()
        raise DiskFailure("the process that makes tables has ended", "nothing has changed: it is started again")

    def rest(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            with process, suppress(OSError):
                process.stdin.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None


def _started() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "warren.snapshot.tables.workers"]
    try:
        return subprocess.Popen(
            command, env={**os.environ, **KEEP_MEMORY}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as error:
        raise DiskFailure(f"no process can be started: {error}", "see the limits of this machine") from error


def main() -> None:
    os.nice(NICENESS)
    for line in sys.stdin.buffer:
        answer = _answered(line)
        try:
            say(answer)
        except BrokenPipeError:
            os._exit(1)  # the owner was killed meanwhile: nobody waits for it


def _answered(line: bytes) -> dict[str, Any]:
    try:
        return {"result": make_table(LocalFiles(), TableTask.from_json(json.loads(line))).to_json()}
    except Exception as error:
        return {"error": error_to_json(error)}


if __name__ == "__main__":
    main()
