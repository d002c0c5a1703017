"""The worker's own side: `python -m warren.log.worker_process` reads one job and answers in lines of JSON.

It is nice to others, holds no lock, and ends with its owner: when its standard input closes, so does it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from warren.base.errors import Damage, WarrenError
from warren.base.threads import SystemThreads
from warren.files.local import LocalFiles
from warren.log.jobs import Job, run_job

NICENESS = 10


def main() -> None:
    os.nice(NICENESS)
    job = Job.from_json(json.loads(sys.stdin.buffer.readline()))
    SystemThreads().start("end-with-owner", _end_with_owner)
    told: dict[str, Any]
    try:
        told = {"result": run_job(LocalFiles(), SystemThreads(), job, lambda share: say({"progress": share}))}
    except Exception as error:
        told = {"error": told_error(error)}
    say(told)


def told_error(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Damage):
        return {"family": "Damage", "what": error.bare, "hint": error.hint, "path": error.path, "offset": error.offset}
    if isinstance(error, WarrenError):
        return {"family": type(error).__name__, "what": error.what, "hint": error.hint}
    return {"family": "DiskFailure", "what": f"the worker failed: {error!r}", "hint": "see its standard error"}


def _end_with_owner() -> None:
    """Our standard input ends when the owner does. Read without a buffer, whose lock would outlive the job."""
    try:
        while os.read(0, 4096):
            pass
    finally:  # an input that cannot be read is as good as ended
        os._exit(1)


def say(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
