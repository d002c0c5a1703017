"""How much memory a rebuild takes, seen from outside: `python -m tools.bench.memory_probe ROOM` opens a store that has
no snapshot, with little memory allowed and no worker process, and is watched while it does.

Two numbers. *Anonymous* memory is what the process allocated: it is what `merge_memory_bytes` bounds, and it is looked
at every few milliseconds. The *resident set* also counts pages of mapped log files, which the kernel keeps as long as
nobody else wants them and drops without a word; its peak comes from the kernel itself.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tools.bench.killed_child import child_environment
from tools.bench.process_tree import status_mib
from tools.bench.stores import SETTINGS, opened
from warren.base.errors import DiskFailure

MERGE_MEMORY_BYTES = 64 << 20
READY = b"ready\n"
_POLL_SECONDS = 0.004


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """In MiB."""

    base: float  # anonymous, before the store is opened: the interpreter, numpy and our modules
    anonymous: float
    resident: float


def watch_rebuild(room: Path) -> MemoryPeak:
    command = [sys.executable, "-m", "tools.bench.memory_probe", str(room)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment()) as process:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline() != READY:
            raise DiskFailure("the process whose memory is watched did not start")
        peak = base = _anonymous(process.pid)
        process.stdin.write(READY)
        process.stdin.flush()
        resident = 0.0
        while process.poll() is None:
            peak = max(peak, _anonymous(process.pid))
            resident = max(resident, status_mib(process.pid, "VmHWM"))
            time.sleep(_POLL_SECONDS)
    if process.returncode:
        raise DiskFailure(f"the rebuild whose memory is watched ended with status {process.returncode}")
    return MemoryPeak(base, peak, resident)


def _anonymous(pid: int) -> float:
    return status_mib(pid, "RssAnon")


def main(room: Path) -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    sys.stdin.buffer.readline()
    settings = replace(SETTINGS, merge_memory_bytes=MERGE_MEMORY_BYTES, use_worker_process=False)
    with opened(room, settings) as store:
        assert len(store.snapshot()) > 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
