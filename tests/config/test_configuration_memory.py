"""How much memory there is: the machine's, or the container's where that is less."""

from __future__ import annotations

from warren.config.configuration import (
    MESSAGES_BYTES_MIN,
    OWN_BYTES,
    UNKNOWN_BYTES,
    messages_bytes,
    system_memory_bytes,
)
from warren.files.local import LocalFiles
from warren.testing.memory_files import MemoryFiles

MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000 kB\n"


def environment(**texts: str) -> MemoryFiles:
    paths = {"memory": "/proc/meminfo", "new": "/sys/fs/cgroup/memory.max"}
    paths["old"] = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
    files = MemoryFiles()
    for name, text in texts.items():
        files.make_directories(paths[name].rpartition("/")[0])
        file = files.create(paths[name])
        file.write_at(0, [text.encode()])
        file.close()
    return files


def test_the_least_of_machine_and_container_counts() -> None:
    assert system_memory_bytes(environment(memory=MEMINFO)) == 16_000_000 * 1024
    assert system_memory_bytes(environment(memory=MEMINFO, new="max\n")) == 16_000_000 * 1024
    assert system_memory_bytes(environment(memory=MEMINFO, new="536870912\n")) == 512 << 20
    assert system_memory_bytes(environment(memory=MEMINFO, old="1073741824\n")) == 1 << 30
    assert system_memory_bytes(environment(memory=MEMINFO, old=f"{1 << 62}\n")) == 16_000_000 * 1024
    assert system_memory_bytes(environment()) == UNKNOWN_BYTES


def test_a_real_machine_reports_its_memory() -> None:
    assert system_memory_bytes(LocalFiles()) > 64 << 20


def test_messages_get_half_of_what_the_process_does_not_need_itself() -> None:
    assert messages_bytes(OWN_BYTES + (1 << 30)) == 1 << 29
    assert messages_bytes(100 << 20) == MESSAGES_BYTES_MIN
