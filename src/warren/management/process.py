"""The process as the system sees it: memory, open files. Read from /proc, through the one door to files."""

from __future__ import annotations

import resource
from typing import NamedTuple

from warren.files.protocol import Files

_PROC = "/proc/self"
_STATUS_BYTES_MAX = 16 << 10


class ProcessFacts(NamedTuple):
    resident_bytes: int
    open_files: int
    open_files_max: int


def process_facts(files: Files) -> ProcessFacts:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFacts(_resident_bytes(files), len(files.list(f"{_PROC}/fd")), soft)


def _resident_bytes(files: Files) -> int:
    file = files.open(f"{_PROC}/status")
    try:
        told = file.read_at(0, _STATUS_BYTES_MAX).decode(errors="replace")
    finally:
        file.close()
    line = next((line for line in told.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
    return int(line.split()[1]) * 1024
