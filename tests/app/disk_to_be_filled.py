"""A program that embeds Warren on disks so small that they are full soon: real ones, mounted for it alone.

    unshare --mount --map-root-user python -m tests.app.disk_to_be_filled one|store PLACE

It has a file system in memory, and a ballast on it that leaves some MiB: removing that is making room, enough for
RocksDB to sort everything once more, however much was written meanwhile. The program writes until the
writer is blocked, reads everything, makes room, and reads again. It prints its findings as one JSON object; an
exception ends it. `one`: everything is on the one small disk. `store`: only the safe snapshot store is.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import warren
from warren.base.errors import WarrenError
from warren.embedded.database import Warren
from warren.log.file_record import FileKind
from warren.log.settings import LogSettings
from warren.snapshot.reflection import ReflectionSettings

MIB = 1 << 20
VALUE_BYTES = 50_000
MORE = 40  # values written behind the moment at which the disk was full
PATIENCE_SECONDS = 120.0
LOG = LogSettings(
    container_bytes=512 << 10,
    rotate_bytes=2 * MIB,
    retention_seconds=0,
    retention_bytes=0,
    compaction_poll_seconds=0.05,
    use_worker_process=False,
)
REFLECTION = ReflectionSettings(
    lag_seconds=0.01, step_bytes=MIB, buffer_bytes=MIB, flush_bytes=MIB, flush_seconds=0.1, retry_seconds=0.1
)


class Writer:
    """One thread that puts one value after another; `acknowledged` of them were acknowledged."""

    def __init__(self, db: Warren) -> None:
        self.acknowledged = 0
        self.last: int | None = None
        self.error: Exception | None = None
        self._values = db.kv("values")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the writer did not continue when there was room"

    def _run(self) -> None:
        try:
            while self.last is None or self.acknowledged < self.last:
                self._values[key_of(self.acknowledged)] = value_of(self.acknowledged)
                self.acknowledged += 1
        except Exception as error:
            self.error = error


def key_of(number: int) -> bytes:
    return b"%06d" % number


def value_of(number: int) -> bytes:
    return random.Random(number).randbytes(VALUE_BYTES)


def mounted(place: Path, mib: int, ballast_mib: int) -> Path:
    """A disk of its own, and its ballast."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(place)], check=True)
    disk_reserve = place / "ballast"
    disk_reserve.write_bytes(bytes(ballast_mib * MIB))
    return disk_reserve


def until(holds: Callable[[], Any], what: str, db: Warren | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what}; alarms: {db and db.alarms()}"
        time.sleep(0.02)


def is_there(db: Warren, count: int) -> bool:
    """The first values are there, each what it was: asked for one by one, and as they come."""
    values = db.kv("values")
    wanted = {key_of(number): value_of(number) for number in range(count)}
    found = dict(values.range(b"", key_of(count)))
    return found == wanted and values.get_many(list(wanted)) == list(wanted.values())


def holds_still(db: Warren) -> bool:
    """An open snapshot stays readable after several retries of reflection."""
    with db.snapshot() as moment:
        values = moment.kv("values")
        before = list(values)
        time.sleep(5 * REFLECTION.retry_seconds)
        return list(values) == before


def log_files(db: Warren) -> int:
    return sum(1 for record in db.database.log.manifest.state.files.values() if record.purpose is FileKind.LOG)


def stands_still(db: Warren, writer: Writer, alarms: list[str]) -> bool:
    """The log may still find room if the store has just applied entries: then the writer continues for a while."""
    at, alarms[:] = writer.acknowledged, db.alarms()
    time.sleep(0.5)
    return any("writers wait" in alarm for alarm in alarms) and writer.acknowledged == at


def has_caught_up(db: Warren) -> bool:
    database = db.database
    return not db.alarms() and database.store.applied.epoch == database.log.durable


def one_disk(place: Path) -> dict[str, Any]:
    disk_reserve = mounted(place, 160, 130)
    db = warren.open(str(place / "db"), log_settings=LOG, reflection=REFLECTION)
    writer = Writer(db)
    alarms: list[str] = []
    until(lambda: stands_still(db, writer, alarms), "the disk never filled up")
    at = writer.acknowledged
    findings: dict[str, Any] = {"alarms": alarms, "at": at}
    findings["read while full"] = is_there(db, at)
    findings["view while full"] = holds_still(db)
    writer.last = writer.acknowledged + MORE
    disk_reserve.unlink()
    writer.join()
    until(lambda: has_caught_up(db), "reflection did not continue", db)
    return findings | ended(db, writer, place / "db", disk_reserve)


def store_disk(place: Path) -> dict[str, Any]:
    disk_reserve = mounted(place / "db" / "store", 400, 384)
    db = warren.open(str(place / "db"), log_settings=LOG, reflection=REFLECTION)
    writer = Writer(db)
    until(lambda: any("No space left" in alarm for alarm in db.alarms()), "the store never filled up")
    at, alarms, files = writer.acknowledged, db.alarms(), log_files(db)
    until(lambda: log_files(db) > files + 3, "the log did not grow")
    writer.last = writer.acknowledged
    writer.join()
    findings: dict[str, Any] = {"alarms": alarms, "at": at, "while full": writer.acknowledged - at}
    findings["read while full"] = is_there(db, at)
    findings["view while full"] = holds_still(db)
    files_before = log_files(db)
    disk_reserve.unlink()
    until(lambda: has_caught_up(db), "reflection did not continue", db)
    until(lambda: log_files(db) < files_before, "the log did not go behind what the store has now")
    return findings | ended(db, writer, place / "db", disk_reserve)


def ended(db: Warren, writer: Writer, directory: Path, disk_reserve: Path) -> dict[str, Any]:
    """What is there behind it all: now, and after a crash whose restart finds the disk full at first."""
    findings = {
        "error": writer.error and str(writer.error),
        "acknowledged": writer.acknowledged,
        "read after": is_there(db, writer.acknowledged),
    }
    db.database.abandon()
    db.database.store.close()
    fill_up(disk_reserve)
    findings["opening"] = opening(directory)
    disk_reserve.unlink()
    with warren.open(str(directory), log_settings=LOG, reflection=REFLECTION) as again:
        return findings | {"read again": is_there(again, writer.acknowledged), "alarms again": again.alarms()}


def opening(directory: Path) -> str:
    """The error of an attempt to open. A store that needs no room at the moment may open."""
    try:
        warren.open(str(directory), log_settings=LOG, reflection=REFLECTION).close()
    except WarrenError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fill_up(disk_reserve: Path) -> None:
    with disk_reserve.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(MIB)):
            pass
    with disk_reserve.open("ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1024)):
            pass


def main() -> None:
    scenarios = {"one": one_disk, "store": store_disk}
    print(json.dumps(scenarios[sys.argv[1]](Path(sys.argv[2]))))


if __name__ == "__main__":
    main()
