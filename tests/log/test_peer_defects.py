"""Defects of the peers we learned from, as tests by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.stage import (
    DIRECTORY,
    STORAGE,
    headers_of,
    log_records,
    memory_machine,
    names_in,
    opened,
    put,
    quiet,
    rows_of,
    small_disk,
)
from tools.simulator.corruption import flip_bit
from warren.base.environment import SystemClock
from warren.base.errors import Damage
from warren.durability.epoch_file import SLOT_BYTES
from warren.files.local import LocalFiles
from warren.files.protocol import join
from warren.log.file_record import EPOCH
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.records.format import BlockKind
from warren.testing.fakes import SeededRandom
from warren.testing.memory_files import ALL, MemoryFiles

CHILD = """
import sys, time
from warren.log.settings import LogSettings
from warren.log.store import LogStore
store = LogStore.open(sys.argv[1], LogSettings(use_worker_process=False))
with store.begin() as session:
    session.put(7, b"committed", b"")
ended = store.begin()
ended.put(7, b"ended, never waited for", b"")
ended.end()
session = store.begin()
session.put(7, b"open", b"x" * 100000)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_kill_9_with_an_open_session_opens_automatically(tmp_path: Path) -> None:
    """A real process, a real SIGKILL: no lock to remove, no repair to run, nothing half of the session."""
    directory = str(tmp_path / "log")
    with subprocess.Popen([sys.executable, "-c", CHILD, directory], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
    with LogStore.open(directory, LogSettings(use_worker_process=False)) as store:
        assert [row.key for row in rows_of(LocalFiles(), store.durable, directory)] == [b"committed"]
        assert store.snapshot().get(STORAGE, b"committed") == b""
        assert store.snapshot().get(STORAGE, b"open") is None
        put(store, b"continues")


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_epoch_file_opens(slot: int, is_cut: bool) -> None:
    """At any byte of either slot, flipped or cut off there."""
    whole = small_disk()
    store = opened(whole)
    put(store, b"first")
    store.witness()
    put(store, b"second")
    store.witness()
    store.abandon()
    raw = whole.contents(join(DIRECTORY, EPOCH))
    used = len(raw[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES].rstrip(b"\0"))
    assert used
    for offset in range(slot * SLOT_BYTES, slot * SLOT_BYTES + used, 5):
        files = whole.crash(ALL, SeededRandom(1))
        if is_cut:
            files.set_contents(join(DIRECTORY, EPOCH), raw[:offset])
        else:
            flip_bit(files, join(DIRECTORY, EPOCH), offset * 8 + offset % 8)
        with opened(files, 2) as store:
            assert [row.key for row in rows_of(files, store.durable)] == [b"first", b"second"]


def store_of_three(is_witnessed: bool) -> tuple[MemoryFiles, int, int]:
    """Three durable sessions of two entries; where the last block of entries begins, and where the file ends."""
    files = small_disk()
    store = opened(files)
    for number in range(3):
        with store.begin() as session:
            session.put(STORAGE, b"%d/a" % number, b"value")
            session.put(STORAGE, b"%d/b" % number, b"value")
        if is_witnessed or number < 2:
            store.witness()
    store.abandon()
    headers = headers_of(files, log_records(files)[0])
    last = [header for header in headers if header.kind == BlockKind.ENTRIES][-1]
    return files, last.offset, headers[-1].end


@pytest.mark.slow
@pytest.mark.parametrize("is_filled", [False, True])
@pytest.mark.parametrize("is_witnessed", [False, True])
def test_every_byte_wise_truncation_of_the_last_block_opens_or_reports_and_never_lies(
    is_witnessed: bool, is_filled: bool
) -> None:
    """Above the witness the epoch is voided, whole; at or below it the start stops and says where. Filled: with zeros,
    as a file system does that kept the size and lost the bytes."""
    whole, start, end = store_of_three(is_witnessed)
    path = join(DIRECTORY, "pwal_0000")
    raw = whole.contents(path)
    outcomes = set()
    for size in range(start, end + 1):
        files = whole.crash(ALL, SeededRandom(1))
        cut = raw[:size].ljust(len(raw) if is_filled else 0, b"\0")
        files.set_contents(path, cut)
        is_whole = cut[:end] == raw[:end]
        if is_witnessed and not is_whole:
            with pytest.raises(Damage) as damage:
                opened(files, 2)
            assert damage.value.path == path
            assert start <= damage.value.offset <= size
            outcomes.add("reported")
            continue
        store = opened(files, 2)
        keys = [row.key for row in rows_of(files, store.durable)]
        store.abandon()
        assert keys == [b"0/a", b"0/b", b"1/a", b"1/b", b"2/a", b"2/b"][: 6 if len(keys) == 6 else 4]
        assert len(keys) == 6 or not is_whole
        outcomes.add("whole" if is_whole else "voided")
    assert outcomes == ({"reported", "whole"} if is_witnessed else {"voided", "whole"})


@pytest.mark.parametrize("is_ended_before", [False, True])
def test_a_session_open_across_rotation_and_online_compaction_loses_nothing(is_ended_before: bool) -> None:
    """C-25: a session that is old when its file is rotated must not fall between the compacted file and the log."""
    files = small_disk()
    environment = memory_machine(
        files, clock=SystemClock()
    )  # the answer of a rotation waits for the session, for a while
    store = LogStore.open(DIRECTORY, quiet(channel_count=2, rotation_reply_seconds_max=0.05), environment)
    put(store, b"old", b"1")
    session = store.begin(1)
    session.put(STORAGE, b"open all the time", b"2")
    put(store, b"old", b"3")
    store.rotate()
    if is_ended_before:
        session.commit()
    store.compact()
    put(store, b"new", b"4")
    if not is_ended_before:
        session.commit()
    wanted = {b"old": b"3", b"open all the time": b"2", b"new": b"4"}
    for turn in range(3):
        snapshot = store.refresh()
        assert {key: snapshot.get(STORAGE, key) for key in wanted} == wanted
        assert len(snapshot) == 3
        store.compact()
        store.purge()
        if turn == 1:
            store.close()
            store = opened(files, 2, quiet(channel_count=2))
    store.close()


def test_compact_delete_restart_does_not_bring_the_key_back() -> None:
    """Neither from the compacted file, nor from log files that were kept behind it, nor when the tombstone itself is
    compacted away."""
    files = small_disk()
    store = opened(files)
    put(store, b"gone", b"back from the dead")
    put(store, b"kept", b"1")
    store.compact()
    with store.begin() as session:
        session.remove(STORAGE, b"gone")
    for run in range(4):
        store.close() if run % 2 else store.abandon()
        store = opened(files, 2 + run)
        assert store.snapshot().get(STORAGE, b"gone") is None
        assert store.snapshot().get(STORAGE, b"kept") == b"1"
        store.compact()
        store.purge()
        assert store.refresh().get(STORAGE, b"gone") is None
    store.close()
    assert "manifest" in names_in(files)
