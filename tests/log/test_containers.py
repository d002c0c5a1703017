"""Containers: the unit in which space inside a log file is allocated, ahead of use."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.log.stage import (
    DIRECTORY,
    STORAGE,
    log_records,
    memory_machine,
    names_in,
    opened,
    put,
    quiet,
    rows_of,
    view_of,
)
from warren.files.environment import Environment
from warren.files.protocol import Files, join
from warren.log.manifest import read_manifest
from warren.log.settings import CONTAINER_BYTES_MIN, LogSettings, container_bytes_of
from warren.log.store import LogStore
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import MemoryFiles

KIB = 1 << 10
MIB = 1 << 20


def size_of(files: Files, name: str = "pwal_0000") -> int:
    return files.stat(join(DIRECTORY, name)).size_bytes


def container_in(files: Files) -> int:
    return read_manifest(files, DIRECTORY).container_bytes


@pytest.mark.parametrize("requested", [-1, 0, 1, 4096, 512 * KIB - 1, 512 * KIB])
def test_a_container_below_512_kib_is_rounded_up_to_it(requested: int) -> None:
    """OP-05, CL-03, C-19: a container of our own log has at least 512 KiB, so the smallest log has 1 MiB."""
    files = MemoryFiles()
    with opened(files, settings=quiet(container_bytes=requested)):
        assert container_in(files) == CONTAINER_BYTES_MIN == 512 * KIB
        assert size_of(files) == MIB


@pytest.mark.parametrize(
    ("requested", "sector", "given"),
    [
        (600_000, 512, 600_064),
        (600_000, 4096, 602_112),
        (600_064, 512, 600_064),
        (1, 4096, 512 * KIB),
        (1, 3 << 18, 3 << 18),
    ],
)
def test_a_container_is_a_whole_number_of_the_disks_sectors(requested: int, sector: int, given: int) -> None:
    """OP-06."""
    files = MemoryFiles(sector_bytes=sector)
    with opened(files, settings=quiet(container_bytes=requested)):
        assert container_in(files) == given
        assert given % sector == 0
        assert size_of(files) == 2 * given


def test_a_container_has_1_mib_by_default() -> None:
    """OP-07."""
    assert container_bytes_of(LogSettings(), 512) == MIB
    files = MemoryFiles()
    with LogStore.open(DIRECTORY, LogSettings(use_worker_process=False), memory_machine(files)):
        assert container_in(files) == MIB


def test_containers_added_later_have_the_size_of_the_first_ones() -> None:
    """OP-08: whatever the option says by now, in the same file, in new files, and after a restart."""
    files = MemoryFiles()
    with opened(files, settings=quiet(container_bytes=600_064)) as store:
        put(store, b"key")
    with opened(files, 2, quiet(container_bytes=4 * MIB)) as store:
        assert size_of(files) == 2 * 600_064
        put(store, b"large", bytes(900_000))
        put(store, b"larger", bytes(900_000))
        assert size_of(files) == 4 * 600_064
        store.rotate()
        assert size_of(files) == 2 * 600_064
        assert container_in(files) == 600_064


@pytest.mark.parametrize(("requested", "given"), [(-3, 2), (0, 2), (1, 2), (2, 2), (3, 3), (5, 5)])
def test_a_log_begins_with_at_least_two_containers(requested: int, given: int) -> None:
    """CL-02: log data lives in containers, and a log has at least two."""
    files = MemoryFiles()
    with opened(files, settings=quiet(initial_containers=requested)):
        assert size_of(files) == given * 512 * KIB


def test_the_number_of_initial_containers_is_two_and_counts_for_a_new_log_only() -> None:
    """OP-09: ignored when the log already exists."""
    assert LogSettings().initial_containers == 2
    files = MemoryFiles()
    with opened(files) as store:
        assert size_of(files) == 2 * 512 * KIB
        put(store, b"key")
    with opened(files, 2, quiet(initial_containers=6)) as store:
        put(store, b"key")
        store.rotate()
        assert size_of(files) == 2 * 512 * KIB


def test_a_container_is_a_unit_inside_a_file_and_not_a_file() -> None:
    """C-33: a log of many containers is one file until it is as long as rotate_bytes says."""
    files = MemoryFiles()
    with opened(files) as store:
        for number in range(6):
            put(store, b"%d" % number, bytes(600_000))
        assert size_of(files) == 7 * 512 * KIB
        assert [name for name in names_in(files) if name.startswith("pwal")] == ["pwal_0000"]
    assert LogSettings().rotate_bytes == 64 * MIB


def test_space_is_there_before_bytes_are_written_and_is_zeros() -> None:
    """Rule 7: a full disk speaks up at the allocation, never first at the sync."""
    disk = FaultyFiles(MemoryFiles())
    with opened(disk) as store:
        start = len(disk.steps)
        put(store, b"small")
        assert [step.operation for step in disk.steps[start:]] == ["write", "sync"]
        start = len(disk.steps)
        put(store, b"large", bytes(1_000_000))
        put(store, b"larger", bytes(1_000_000))
        operations = [step.operation for step in disk.steps[start:] if "pwal" in step.path]
        assert operations == ["write", "sync", "allocate", "write", "sync"]
        participant = store.channels[0].participant
        assert participant.allocated == size_of(disk)
        assert not any(view_of(disk, log_records(disk)[0])[participant.end :])


def stress(environment: Environment, directory: str, seed: int, sessions: int) -> None:
    """Sessions of any size over three channels, some larger than a container, with rotations and restarts between."""
    rng = random.Random(seed)
    reported: dict[bytes, int] = {}
    for run in range(3):
        store = LogStore.open(directory, quiet(channel_count=3, rotate_bytes=3 * MIB), environment)
        for number in range(sessions):
            session = store.begin(rng.randrange(3))
            for part in range(rng.randrange(1, 4)):
                key = b"%d/%d/%d" % (run, number, part)
                reported[key] = size = rng.choice([0, 1, 500, 70_000, 300_000, 700_000, MIB - 20])
                session.put(STORAGE, key, bytes(size))
            session.end()
            if rng.random() < 0.5:
                store.wait(session.epoch or store.durable)
            check_sizes(store)
        store.close()
    assert {row.key: len(row.value) for row in rows_of(environment.files, directory=directory)} == reported


def check_sizes(store: LogStore) -> None:
    """What is written lies inside what is allocated, and that is a whole number of containers."""
    for channel in store.channels:
        participant = channel.participant
        if participant.handle is not None:
            assert participant.allocated == participant.handle.size()
            assert participant.allocated % participant.container_bytes == 0
            assert participant.allocated >= participant.durable_end.end


@pytest.mark.parametrize("seed", range(3))
def test_containers_are_added_under_stress(seed: int) -> None:
    """TS-01: the stress test of container extension that the seed asks for, in memory."""
    files = MemoryFiles()
    stress(memory_machine(files), DIRECTORY, seed, 25)
    largest = max(record.end for record in log_records(files))
    assert largest > 3 * MIB, "files grew over several containers"


@pytest.mark.slow
def test_containers_are_added_under_stress_on_a_real_disk(tmp_path: Path) -> None:
    """TS-01, on the machine's own disk."""
    environment = Environment.real()
    stress(environment, str(tmp_path / "log"), 9, 30)
    records = read_manifest(environment.files, str(tmp_path / "log")).files.values()
    assert max(record.end for record in records) > 3 * MIB, "files grew over several containers"
