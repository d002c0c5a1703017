"""How much memory there is, and how much of it is for messages.

    vm_memory_high_watermark.relative = 0.4      of the memory of the machine, or of the container if it has less
    vm_memory_high_watermark.absolute = 2GiB     of the whole process

RabbitMQ means the whole process by it: above that much it blocks publishers. So do we, but our queues page messages
out long before: they may have half of what the process does not need for itself. Who says nothing of it gets our own
setting for messages (`QueueSettings`), and the process the share that RabbitMQ gives it.
"""

from __future__ import annotations

from warren.base.errors import WarrenError
from warren.files.protocol import Files

USUAL_SHARE = 0.6
OWN_BYTES = 220 << 20  # code, commit, buffers and the safe snapshot store
MESSAGES_BYTES_MIN = 16 << 20
UNKNOWN_BYTES = 4 << 30
_MEMORY = "/proc/meminfo"
_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_READ_BYTES = 4096


def system_memory_bytes(files: Files) -> int:
    """What this process may take at all."""
    told = [_total(_text(files, _MEMORY)), *(_number(_text(files, path)) for path in _CONTAINER)]
    found = [size for size in told if size]
    return min(found) if found else UNKNOWN_BYTES


def messages_bytes(limit_bytes: int) -> int:
    """Of a process that may have so much."""
    return max(MESSAGES_BYTES_MIN, (limit_bytes - OWN_BYTES) // 2)


def _total(text: str) -> int:
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return _number(rest.partition("kB")[0]) * 1024
    return 0


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def _text(files: Files, path: str) -> str:
    """Nothing, where there is no such file."""
    try:
        file = files.open(path)
    except WarrenError:
        return ""
    try:
        return file.read_at(0, _READ_BYTES).decode("ascii", "replace")
    finally:
        file.close()
