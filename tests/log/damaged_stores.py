"""Small stores with random damage of every kind that a disk or a careless hand does, from a seed; and what `verify`
said, in a form that can be compared."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.log.forge import DIRECTORY, QUIET, environment, put, shrink
from tools.simulator.corruption import flip_bit, tear_tail, zero_tail
from warren.files.protocol import join
from warren.log.check.repair import Repair
from warren.log.check.verify import VerifyReport
from warren.log.file_record import is_wal
from warren.log.store import LogStore
from warren.testing.memory_files import MemoryFiles

KINDS = ("nothing", "flip", "flips", "tear", "zero", "remove", "swap", "older", "repaired")


def random_store(seed: int) -> MemoryFiles:
    """Two channels, several files, perhaps a compaction, a restart or a stop."""
    rng, files = random.Random(seed), MemoryFiles()
    settings = replace(QUIET, channel_count=2, retention_seconds=1e6, retention_bytes=1 << 40)
    store = LogStore.open(DIRECTORY, settings, environment(files, seed))
    for number in range(rng.randint(2, 9)):
        put(store, b"key %d" % rng.randrange(5), number % 2)
        if rng.random() < 0.3:
            store.rotate()
        if rng.random() < 0.15:
            store.compact()
        if rng.random() < 0.15:
            store.close()
            store = LogStore.open(DIRECTORY, settings, environment(files, seed + number))
    if rng.random() < 0.5:
        store.close()
    else:
        store.witness()
        store.abandon()
    shrink(files)
    return files


def damaged_store(seed: int) -> tuple[MemoryFiles, str]:
    """The disk, and what was done to it."""
    files, rng = random_store(seed), random.Random(-seed)
    kind = KINDS[seed % len(KINDS)]
    paths = _paths(files, DIRECTORY)
    logs = [path for path in paths if is_wal(path.rpartition("/")[2])]
    path, other = rng.choice(paths), rng.choice(logs)
    size = len(files.contents(path))
    if kind in ("flip", "flips", "repaired"):
        for _ in range(1 if kind == "flip" else 3):
            spoilt = other if kind == "repaired" else rng.choice(paths)
            flip_bit(files, spoilt, rng.randrange(len(files.contents(spoilt)) * 8))
    elif kind in ("tear", "zero"):
        (tear_tail if kind == "tear" else zero_tail)(files, path, rng.randint(0, size))
    elif kind == "remove":
        files.remove(other)
    elif kind == "swap":
        mine, its = files.contents(path), files.contents(other)
        files.set_contents(path, its)
        files.set_contents(other, mine)
    elif kind == "older":
        files.set_contents(path, random_store(seed + 1).contents(path) if _has(seed + 1, path) else b"")
    if kind == "repaired":
        _repair(files, seed)
    return files, kind


def reported(report: VerifyReport) -> dict[str, Any]:
    """Everything that a report says, but for the bytes themselves."""
    return {
        "durable": report.durable,
        "findings": report.findings,
        "files": [replace(scan, view=memoryview(b"")) for scan in report.files],
        "chain": report.chain,
    }


def _paths(files: MemoryFiles, directory: str) -> list[str]:
    found: list[str] = []
    for name in sorted(files.list(directory)):
        path = join(directory, name)
        found += _paths(files, path) if files.stat(path).is_directory else [path]
    return [path for path in found if files.contents(path)]


def _has(seed: int, path: str) -> bool:
    return random_store(seed).exists(path)


def _repair(files: MemoryFiles, seed: int) -> None:
    created = environment(files, seed)
    Repair(files, DIRECTORY, created.clock, created.threads, created.rng, thread_num=1).run()
