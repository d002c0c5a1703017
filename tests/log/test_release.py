"""A store releases what it opened: a file that was purged, and everything when opening fails or room is short."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from tempfile import TemporaryDirectory

import pytest

from tests.log.stage import quiet
from tests.open_files import open_in
from tests.snapshot.snapshot_store_suite import QUICK_PLACE
from warren.base.errors import OutOfRoom, WarrenError
from warren.base.ids import ChannelId
from warren.durability.epoch_file import EpochFile, read_witness
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.log.file_record import EPOCH
from warren.log.store import LogStore
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles

PLAIN = quiet(use_worker_process=False, keeps_snapshot=False, container_bytes=64 << 10)


@pytest.fixture
def place() -> Iterator[str]:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        yield place


def machine_of(files: FaultyFiles) -> Environment:
    return replace(Environment.real(), files=files)


def used(directory: str) -> None:
    """A writer that was killed."""
    store = LogStore.open(directory, PLAIN)
    session = store.begin()
    session.put(1, b"key", b"value")
    session.commit()
    store.abandon()


def test_nothing_holds_the_file_that_an_earlier_run_wrote(place: str) -> None:
    """Its room on the disk is free when it is purged, not when the process ends."""
    used(place)
    with LogStore.open(place, PLAIN):
        gc.collect()
        assert [path for path in open_in(place) if "pwal" in path] == [f"{place}/pwal_0000"]
    gc.collect()
    assert open_in(place) == []


@pytest.mark.parametrize("is_new", [True, False])
def test_an_opening_that_fails_leaves_nothing_open(place: str, is_new: bool) -> None:
    """At each step of it, one after the other."""
    for step in count():
        directory = f"{place}/{step}"
        if not is_new:
            used(directory)
        files = FaultyFiles(LocalFiles(), [Fault(FaultKind.IO_ERROR, at_step=step)])
        has_failed = False
        try:
            LogStore.open(directory, PLAIN, machine_of(files), begins_upkeep=False).abandon()
        except WarrenError:
            has_failed = True
        gc.collect()
        assert open_in(directory) == [], files.steps[-1]
        if not has_failed:
            assert step > 10
            return


def test_a_writer_that_waits_for_room_does_not_open_more_and_more(place: str) -> None:
    """A rotation tries again and again to make its files."""
    full = Fault(FaultKind.NO_SPACE, "allocate", times=None, is_armed=False)
    files = FaultyFiles(LocalFiles(), [full])
    with LogStore.open(place, PLAIN, machine_of(files), begins_upkeep=False) as store:
        witness, _ = read_witness(files, f"{place}/{EPOCH}")
        assert witness is not None
        before = open_in(place)
        full.is_armed = True
        participant = store.log_files.plan_log_file(ChannelId(1))
        for _ in range(3):
            with pytest.raises(OutOfRoom):
                store.log_files.create(participant)
            with pytest.raises(OutOfRoom):
                EpochFile.create(files, f"{place}/another", witness)
        assert open_in(place) == before
