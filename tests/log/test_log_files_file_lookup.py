"""Every reader beside a rotation, a compaction and a purge, at each of its own operations on the disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.log.interleaving import every_run
from tests.log.stage import DIRECTORY, QUIET, memory_machine, put, quiet, small_disk
from warren.base.environment import SystemRandom
from warren.base.errors import Damage, Gone
from warren.base.ids import ChannelId, Epoch, FileNumber
from warren.base.threads import SystemThreads
from warren.files.protocol import Files, join
from warren.log.check.repair import Repair
from warren.log.check.verify import verify
from warren.log.checkpoint import make_cut
from warren.log.file_record import FileState, active_name, rotated_name
from warren.log.log_files import NumberedFiles, find_file, locate, open_by_name, open_record
from warren.log.manifest import read_manifest
from warren.log.read.read_only import epoch_at_time, open_for_reading
from warren.log.read.tail import Follower, LogTail
from warren.log.retention import Pins
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import MemoryFiles

KEYS = [b"a", b"b", b"c"]
PURGING = quiet(retention_seconds=0.0, retention_bytes=0)
Reader = Callable[[Files, LogStore], object]


def store_on(files: Files | None) -> LogStore:
    """Two sealed files and an active one, all of them witnessed."""
    store = LogStore.open(DIRECTORY, PURGING, memory_machine(files))
    for key in KEYS[:2]:
        put(store, key)
        store.rotate()
    put(store, KEYS[2])
    store.witness()
    return store


def rotate(store: LogStore) -> None:
    store.rotate()


def rotate_and_purge(store: LogStore) -> None:
    store.compact()
    store.purge()
    put(store, b"later")
    store.rotate()


def verified(files: Files, store: LogStore) -> None:
    report = verify(files, DIRECTORY, SystemThreads(), 1)
    assert report.is_good, list(map(str, report.findings))
    assert not [finding for finding in report.findings if "witness" in finding.what]


def scanned(files: Files, store: LogStore) -> None:
    log = open_for_reading(files, DIRECTORY)
    batches = [batch for record in log.records() for batch in log.input_of(record).batches()]
    assert {key for batch in batches for key in batch.keys.to_list()} >= set(KEYS)


def followed(files: Files, store: LogStore) -> None:
    blocks = list(Follower(files, DIRECTORY, Epoch(0)).read())
    assert [key for block in blocks for key in block.columns.keys.to_list()][:3] == KEYS


def tailed_by_the_owner(files: Files, store: LogStore) -> None:
    tail = LogTail(files, DIRECTORY, lambda: store.manifest.state, Epoch(0))
    tail.expect()
    assert tail.waiting_bytes(store.durable, 1 << 20) > 0
    keys = {key for block in tail.read(store.durable) for key in block.columns.keys.to_list()}
    assert keys & set(KEYS) in (set(KEYS), set()), "all files of one state of the manifest, or `Gone`"


def planned_for_repair(files: Files, store: LogStore) -> None:
    clock = ManualClock()
    report = Repair(files, DIRECTORY, clock, SystemThreads(), SeededRandom(1), thread_num=1).plan()
    assert not report.is_needed, report


def epoch_of_a_time(files: Files, store: LogStore) -> None:
    log = open_for_reading(files, DIRECTORY)
    epoch_at_time(files, DIRECTORY, log.state, log.durable, 1 << 62)


def opened_by_number(files: Files, store: LogStore) -> None:
    numbers = NumberedFiles(files, DIRECTORY, store.manifest)
    for number, record in sorted(store.manifest.state.files.items()):
        file, identity = numbers.open(number)
        file.close()
        assert identity == record.identity


def cut(files: Files, store: LogStore) -> None:
    pins = Pins(files, DIRECTORY, ManualClock(), SystemRandom())
    created = make_cut(files, DIRECTORY, store.manifest, pins, Epoch(2), 60.0)
    created.write_to(files, SystemThreads(), SeededRandom(2), "/data/cut")


def pins_listed(files: Files, store: LogStore) -> None:
    pins = Pins(files, DIRECTORY, ManualClock(), SystemRandom())
    assert pins.live() == []


READERS: list[Reader] = [
    verified,
    scanned,
    followed,
    tailed_by_the_owner,
    planned_for_repair,
    epoch_of_a_time,
    opened_by_number,
    cut,
    pins_listed,
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_rotation_at_any_moment_is_neither_damage_nor_an_error(reader: Reader) -> None:
    runs = 0
    for run in every_run(store_on, rotate, reader, small_disk):
        run()
        runs += 1
    assert runs > 3


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_what_a_purge_has_removed_is_gone_and_not_damaged(reader: Reader) -> None:
    """Whole as of the beginning, or `Gone`: never another error, never a part."""
    for run in every_run(store_on, rotate_and_purge, reader, small_disk, is_partial=False):
        with suppress(Gone):
            run()


def test_a_file_is_known_by_its_own_header_under_either_name() -> None:
    """A crash between the rename and the edit leaves a file under its rotated name, which the manifest calls active."""
    files = small_disk()
    store = LogStore.open(DIRECTORY, QUIET, memory_machine(files))
    put(store, b"a")
    store.abandon()
    record = read_manifest(files, DIRECTORY).of_state(FileState.ACTIVE)[0]
    assert find_file(files, DIRECTORY, record) == join(DIRECTORY, active_name(ChannelId(0)))
    rotated = join(DIRECTORY, rotated_name(ChannelId(0), record.number))
    files.rename(join(DIRECTORY, active_name(ChannelId(0))), rotated)
    assert find_file(files, DIRECTORY, record) == rotated


def test_a_file_that_the_manifest_names_and_that_is_not_there_is_damage() -> None:
    files = small_disk()
    store_on(files).abandon()
    record = read_manifest(files, DIRECTORY).files[FileNumber(1)]
    files.remove(join(DIRECTORY, record.name))
    assert locate(files, DIRECTORY, record) is None
    with pytest.raises(Damage, match=r"log file 1 \(pwal_0000.0000000001\) is missing"):
        open_record(files, DIRECTORY, record)


def test_a_file_with_an_unreadable_header_is_opened_by_its_name_to_be_judged_and_by_nothing_else() -> None:
    files = small_disk()
    store_on(files).abandon()
    record = read_manifest(files, DIRECTORY).files[FileNumber(1)]
    path = join(DIRECTORY, record.name)
    files.set_contents(path, b"\0" * 96 + files.contents(path)[96:])
    found = open_by_name(files, DIRECTORY, record)
    found.file.close()
    assert (found.path, found.is_identified) == (path, False)
    with pytest.raises(Damage, match="log file 1 does not begin with its file header"):
        open_record(files, DIRECTORY, record)


def test_another_incarnation_of_a_recycled_file_is_never_taken_for_it() -> None:
    files = MemoryFiles()
    store_on(files).abandon()
    record = read_manifest(files, DIRECTORY).files[FileNumber(1)]
    other = record.changed(incarnation=record.incarnation + 1)
    with pytest.raises(Damage, match="does not begin with its file header"):
        open_record(files, DIRECTORY, other)
