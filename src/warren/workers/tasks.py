"""Tasks: functions that run in a niced child process, `python -m warren.workers.tasks TASK`.

    owner: TaskProcess                                 child
    request (JSON)                         ──stdin──▶  TASK(request, progress)
    {"progress": 0.4}                      ◀─stdout──
    {"result": {…}} | {"error": {…}}       ◀─stdout──  then waits for the next request

A task is named by its dotted name, "warren.log.compaction.jobs:merge_task", so this package imports nothing of what it
runs. A task reads sealed files, writes below a directory of its own and syncs. It holds no lock and edits nothing: the
owner checks the result and commits it. So the child may be killed at any moment: the request fails, and can be
repeated.

Heavy work runs in a process because one thread of Python runs at a time: in the owner's process, merging a backlog
would take the time that writers need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from warren.base.errors import DiskFailure
from warren.base.threads import SystemThreads
from warren.workers.process import (
    ChildProcess,
    Message,
    RequestReader,
    error_from_json,
    error_to_json,
    send_message,
)

Progress = Callable[[float], None]
Task = Callable[[Message, Progress], Message]

NICENESS = 10
# A merge allocates and frees hundreds of megabytes in large pieces. By default each piece is new memory from the
# system, to be zeroed and faulted in; with these limits it is reused. The memory is freed with the process.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}


class TaskProcess:
    """Runs requests of one task, one at a time. The process starts with the first request, in a tenth of a second."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child else None

    def run(self, request: Message, progress: Progress = lambda share: None) -> Message:
        """The task's result. Raises what the task raised; `DiskFailure` if the process exits before."""
        child = self._child = self._child or ChildProcess(["-m", "warren.workers.tasks", self._task], KEEP_MEMORY)
        try:
            child.send(request)
            answer = _answer(child, progress)
        except BaseException:
            self.close()  # a later answer would be taken for that of the next request
            raise
        if answer is None:
            self.close()
            code = child.exit_code or 0
            status = f"killed by signal {-code}" if code < 0 else f"status {code}"
            raise DiskFailure(
                f"the worker process ended before its job did: {status}", "nothing has changed: try again"
            )
        if "error" in answer:
            raise error_from_json(answer["error"])
        result: Message = answer["result"]
        return result

    def close(self) -> None:
        """End the process, and free its memory. The next request starts another one."""
        child, self._child = self._child, None
        if child is not None:
            child.close_input()
            child.wait()

    def kill(self) -> None:
        """Kill the process from any thread; the request under way fails."""
        child = self._child
        if child is not None:
            child.kill()


def _answer(child: ChildProcess, progress: Progress) -> Message | None:
    """The next result or error; None if the child has exited. Other lines are skipped."""
    while (message := child.receive()) is not None:
        if "progress" in message:
            progress(message["progress"])
        elif "result" in message or "error" in message:
            return message
    return None


# -- child -------------------------------------------------------------------------------------------------------


def find_task(name: str) -> Task:
    module, _, function = name.partition(":")
    task: Task = getattr(import_module(module), function)
    return task


def main() -> None:
    os.nice(NICENESS)
    requests = RequestReader(SystemThreads())
    task = find_task(sys.argv[1])
    while True:
        request = requests.next()
        with suppress(BrokenPipeError):  # the owner has exited: so does this process
            send_message(_run(task, request))


def _run(task: Task, request: Message) -> Message:
    try:
        return {"result": task(request, lambda share: send_message({"progress": share}))}
    except Exception as error:
        return {"error": error_to_json(error)}


if __name__ == "__main__":
    main()
