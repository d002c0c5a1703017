"""The table worker's own side: `python -m warren.snapshot.table_process` answers tasks until its input ends."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from warren.files.local import LocalFiles
from warren.log.worker_process import NICENESS, say, told_error
from warren.snapshot.table_tasks import TableTask, make_table


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
        return {"error": told_error(error)}


if __name__ == "__main__":
    main()
