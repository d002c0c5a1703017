"""Nothing durable changes unseen: every bit, every byte cut off, every file taken away or put in another's place.

What `verify` must say of a change: a finding that names the file, and an offset from which the change is not far (the
block it stands in). What opening must do: refuse, or serve exactly what was durable. Never anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.log.forge import DIRECTORY, EVERYTHING, QUIET, STORAGE, environment, put, shrink, small_store, stored
from tools.simulator.corruption import flip_bit
from warren.base.errors import Damage, Refused, WarrenError
from warren.base.ids import Epoch
from warren.base.threads import SystemThreads
from warren.durability.epoch_file import SLOT_BYTES, decode_slot
from warren.files.protocol import join
from warren.log.check.verify import CheckedFile, FileChecks, Severity, VerifyReport, check_files, verify, verify_with
from warren.log.file_record import EPOCH, MANIFEST, is_wal
from warren.log.store import LogStore
from warren.records.block import Header, check_block
from warren.records.format import FORMAT_VERSION
from warren.testing.fakes import SeededRandom
from warren.testing.memory_files import SYNCED, MemoryFiles

Place = tuple[str, int, int]  # a file, and the first and last byte of a block or slot of it


def check(files: MemoryFiles) -> VerifyReport:
    return verify(files, DIRECTORY, SystemThreads(), thread_num=1)


def blocks_of(files: MemoryFiles, name: str) -> Iterator[Place]:
    view = memoryview(files.contents(join(DIRECTORY, name)))
    at = 0
    while at < len(view) and isinstance(found := check_block(view, at, None), Header):
        yield name, at, found.end
        at = found.end


def slots_of(files: MemoryFiles, name: str) -> Iterator[Place]:
    """What the checksum of each slot covers; behind it stand the remains of longer ones, which mean nothing."""
    contents = files.contents(join(DIRECTORY, name))
    for start in (0, SLOT_BYTES):
        witness = decode_slot(contents[start : start + SLOT_BYTES])
        if witness is not None:
            yield name, start, start + 80 + 32 * len(witness.ends)


def every_place(files: MemoryFiles) -> list[Place]:
    """Every block and slot of the store."""
    places: list[Place] = []
    for name in files.list(DIRECTORY):
        if is_wal(name) or name == MANIFEST:
            places += blocks_of(files, name)
        elif name.startswith(EPOCH):
            places += slots_of(files, name)
    return places


def assert_found(report: VerifyReport, place: Place) -> None:
    name, start, end = place
    found = [finding for finding in report.findings if finding.severity >= Severity.WARNING]
    assert found, f"not detected: {place}"
    assert any(f.path == join(DIRECTORY, name) and start <= f.offset < end for f in found), (
        place,
        list(map(str, found)),
    )


def assert_refused_or_true(files: MemoryFiles) -> None:
    """Open a copy of the disk: an error with a hint, or exactly what was durable."""
    try:
        served = stored(files.crash(SYNCED, SeededRandom(1)))
    except WarrenError as error:
        served = EVERYTHING if error.hint else {}
    assert served == EVERYTHING


def settled(is_stopped: bool, epochs: int = 8, channel_count: int = 2) -> MemoryFiles:
    """A small store of which everything is synced, without the zeros."""
    files = small_store(is_stopped, epochs, replace(QUIET, channel_count=channel_count))
    for name in files.list(DIRECTORY):
        path = join(DIRECTORY, name)
        if not files.stat(path).is_directory:
            files.set_contents(path, files.contents(path))
    files.sync_directory(DIRECTORY)
    shrink(files)
    return files


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_whole_store_is_good_and_its_chain_complete(is_stopped: bool) -> None:
    report = check(settled(is_stopped))
    assert report.is_good and not [f for f in report.findings if f.severity >= Severity.WARNING]
    assert report.chain is not None
    assert (report.chain.anchor, report.chain.last, report.chain.linked, report.chain.lost) == (0, 8, 8, [])
    assert {scan.verdict.word for scan in report.files} == {"ok"}


def flip_each(files: MemoryFiles, step: int, first: int = 0) -> int:
    """Flip bits of every place, `step` apart, one at a time; how many."""
    flipped = 0
    for place in every_place(files):
        name, start, end = place
        for bit in range(start * 8 + first, end * 8, step):
            path = join(DIRECTORY, name)
            flip_bit(files, path, bit)
            assert_found(check(files), place)
            flip_bit(files, path, bit)
            flipped += 1
    return flipped


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_flipped_bit_at_or_below_the_witness_is_found_and_located(is_stopped: bool) -> None:
    """A sample of what the next test does in full: bits 83 apart, so that every place in a byte has its turn."""
    assert flip_each(settled(is_stopped), 83) > 500


@pytest.mark.slow
@pytest.mark.parametrize("first", range(8))
def test_every_single_bit_flip_at_or_below_the_witness_is_detected_and_located(first: int) -> None:
    """X-09: every bit of every block, of the manifest, of file headers and of the epoch files."""
    assert flip_each(settled(is_stopped=False, epochs=2, channel_count=1), 8, first) > 3000


@pytest.mark.slow
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_flipped_bit_is_refused_at_open_or_changes_nothing_that_is_served(is_stopped: bool) -> None:
    """One bit of every third byte: opening takes longer than verifying."""
    files = settled(is_stopped)
    for name, start, end in every_place(files):
        for byte in range(start, end, 3):
            bit = byte * 8 + byte % 7
            flip_bit(files, join(DIRECTORY, name), bit)
            assert_refused_or_true(files)
            flip_bit(files, join(DIRECTORY, name), bit)


def test_some_flipped_bits_are_refused_at_open_or_change_nothing_that_is_served() -> None:
    """A sample of the test above."""
    files = settled(True)
    for name, start, _ in every_place(files):
        flip_bit(files, join(DIRECTORY, name), start * 8 + 70)
        assert_refused_or_true(files)
        flip_bit(files, join(DIRECTORY, name), start * 8 + 70)


@pytest.mark.parametrize("name", ["pwal_0000", "pwal_0001"])
def test_every_byte_wise_truncation_of_the_last_block_opens_or_reports_and_never_lies(name: str) -> None:
    """The store died with its witness synced, so every block is durable: a cut is damage, and reported as such."""
    files = settled(False)
    path = join(DIRECTORY, name)
    *_, last = blocks_of(files, name)
    contents = files.contents(path)
    for length in range(last[1], last[2]):
        files.set_contents(path, contents[:length])
        report = check(files)
        assert not report.is_good
        assert report.first_damage is not None
        assert (report.first_damage.path, report.first_damage.offset) == (path, last[1])
        with pytest.raises(Damage):
            stored(files.crash(SYNCED, SeededRandom(1)))
    files.set_contents(path, contents)
    assert stored(files.crash(SYNCED, SeededRandom(1))) == EVERYTHING


def test_every_truncation_above_the_witness_opens_with_what_was_durable() -> None:
    """An epoch that was not witnessed and is cut off anywhere is there whole or not at all."""
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    put(store, b"key 0")
    store.epoch_file.write(store.commit)
    put(store, b"key 1")
    store.abandon()
    shrink(files)
    path = join(DIRECTORY, "pwal_0000")
    contents = files.contents(path).rstrip(b"\0")
    places = list(blocks_of(files, "pwal_0000"))
    assert len(places) == 5
    for length in range(places[3][1], len(contents) + 1):
        files.set_contents(path, contents[:length] + bytes(64))
        for name in files.list(DIRECTORY):
            if not files.stat(join(DIRECTORY, name)).is_directory:
                files.set_contents(join(DIRECTORY, name), files.contents(join(DIRECTORY, name)))
        files.sync_directory(DIRECTORY)
        assert check(files).is_good
        served = stored(files.crash(SYNCED, SeededRandom(1)))
        wanted = {b"key 0", b"key 1"} if length == len(contents) else {b"key 0"}
        assert set(served) == wanted


def test_a_torn_epoch_file_opens() -> None:
    files = settled(True)
    path = join(DIRECTORY, EPOCH)
    for start in (0, SLOT_BYTES):
        torn = bytearray(files.contents(path))
        torn[start + 20 : start + 60] = bytes(40)
        copy = files.crash(SYNCED, SeededRandom(1))
        copy.set_contents(path, bytes(torn))
        report = check(copy)
        assert report.is_good
        assert any((f.path, f.offset) == (path, start) and f.severity is Severity.WARNING for f in report.findings)
        assert stored(copy) == EVERYTHING


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_damage_that_says_what_it_held() -> None:
    files = settled(True)
    files.remove(join(DIRECTORY, "pwal_0001.0000000002"))
    report = check(files)
    assert report.first_damage is not None
    assert "is missing; it held 2 entries of epochs 2 … 4" in report.first_damage.what
    with pytest.raises(Damage, match="missing"):
        stored(files)


def test_a_file_in_another_ones_place_is_damage() -> None:
    files = settled(True)
    first, second = join(DIRECTORY, "pwal_0000.0000000001"), join(DIRECTORY, "pwal_0001.0000000002")
    files.set_contents(first, files.contents(second))
    report = check(files)
    assert not report.is_good
    with pytest.raises(Damage):
        stored(files)


def test_an_older_copy_of_an_active_file_is_damage() -> None:
    """Each block of it is good: only the witness and the chain know that it is not all."""
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    put(store, b"a")
    old = files.contents(join(DIRECTORY, "pwal_0000"))
    put(store, b"b")
    store.epoch_file.write(store.commit)
    store.abandon()
    files.set_contents(join(DIRECTORY, "pwal_0000"), old)
    report = check(files)
    assert not report.is_good
    with pytest.raises(Damage):
        stored(files)


def test_an_epoch_taken_out_of_the_chain_is_seen() -> None:
    """Epoch 3 is alone in its file; the manifest is changed along with it, so that only the chain shows it."""
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    for key in (b"a", b"b", b"c"):
        put(store, key)
        store.rotate()
    put(store, b"d")
    record = next(r for r in store.manifest.state.files.values() if r.first_epoch == 2)
    store.manifest.commit([["drop", record.number]])
    store.close()
    files.remove(join(DIRECTORY, record.name))
    report = check(files)
    assert report.chain is not None and not report.chain.is_complete
    assert "follows epoch 2" in report.chain.problems[0].what


def test_a_digest_that_is_not_the_witnessed_one_is_seen() -> None:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    put(store, b"a")
    store.commit.digest = bytes(16)
    store.close()
    report = check(files)
    assert report.chain is not None
    assert "digests differ" in report.chain.problems[0].what


def test_the_chain_continues_across_restarts_crashes_and_rotations() -> None:
    files = MemoryFiles()
    for life in range(4):
        store = LogStore.open(DIRECTORY, QUIET, environment(files, life + 1))
        for number in range(3):
            put(store, b"%d %d" % (life, number), number % 2)
        if life % 2:
            store.rotate()
            put(store, b"%d last" % life)
        if life == 2:
            store.epoch_file.write(store.commit)
            store.abandon()
        else:
            store.close()
    report = check(files)
    assert report.is_good and report.chain is not None
    assert report.chain.linked == 14


def test_the_chain_is_proved_from_the_anchor_once_history_was_purged() -> None:
    files = MemoryFiles()
    settings = replace(QUIET, retention_seconds=0)
    store = LogStore.open(DIRECTORY, settings, environment(files))
    for number in range(4):
        put(store, b"key %d" % number, number % 2)
    store.compact()
    store.purge()
    put(store, b"later")
    store.close()
    report = check(files)
    assert report.is_good and report.chain is not None
    assert (report.chain.anchor, report.chain.linked, report.chain.last) == (4, 1, 5)
    assert [scan.verdict.word for scan in report.files] == ["ok"] * len(report.files)
    sorted_name = next(name for name in files.list(DIRECTORY) if "compacted" in name)
    flip_bit(files, join(DIRECTORY, sorted_name), 120 * 8)
    assert check(files).first_damage is not None


def test_what_lies_about_is_noted_and_no_damage() -> None:
    files = settled(True)
    for name in ("pwal_0007", "manifest.tmp", "staging/job", "pins/00.json"):
        files.create(join(DIRECTORY, name)).close()
    report = check(files)
    assert report.is_good
    reported = {finding.path: finding.severity for finding in report.findings}
    assert reported[join(DIRECTORY, "pwal_0007")] is Severity.WARNING
    assert {join(DIRECTORY, name) for name in ("manifest.tmp", "staging/job", "pins/00.json")} <= set(reported)


def test_a_voided_tail_is_noted_with_its_reason() -> None:
    files = small_store(False)
    path = join(DIRECTORY, "pwal_0000")
    contents = bytearray(files.contents(path))
    end = [place[2] for place in blocks_of(files, "pwal_0000")][-1]
    contents[end : end + 20] = b"\x77" * 20
    files.set_contents(path, bytes(contents))
    assert {scan.verdict.word for scan in check(files).files} == {"ok", "broken_after"}
    LogStore.open(DIRECTORY, QUIET, environment(files, 2)).close()
    report = check(files)
    assert report.is_good
    assert any("voided up to byte" in f.what and "torn" in f.what and f.offset == end for f in report.findings)


# -- unknown files ----------------------------------------------------------------------------------------------------


def test_a_directory_that_is_no_store_is_refused_with_a_hint() -> None:
    files = MemoryFiles()
    files.make_directories(DIRECTORY)
    with pytest.raises(Refused, match="no log directory") as raised:
        check(files)
    assert raised.value.hint


def test_a_foreign_manifest_is_damage_and_not_opened() -> None:
    files = settled(True)
    files.set_contents(join(DIRECTORY, MANIFEST), b"CURRENT: some other store's manifest" * 4)
    report = check(files)
    assert report.first_damage is not None and report.first_damage.path == join(DIRECTORY, MANIFEST)
    with pytest.raises(Damage):
        stored(files)


def test_a_newer_format_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("warren.records.block.FORMAT_VERSION", FORMAT_VERSION + 1)
        files = small_store(False)
    for refuse in (check, stored):
        with pytest.raises(Refused) as raised:
            refuse(files)
        assert "newer warren" in raised.value.hint


def test_verify_beside_a_running_store_checks_what_is_durable() -> None:
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, QUIET, environment(files))
    put(store, b"witnessed")
    store.epoch_file.write(store.commit)
    session = store.begin()
    session.put(STORAGE, b"durable, not witnessed yet", b"")
    session.commit()
    report = check(files)
    assert report.is_good and report.durable == Epoch(1)
    assert "nondurable_entries" in {scan.verdict.word for scan in report.files}
    store.close()
    assert check(files).durable == Epoch(2)


@pytest.mark.parametrize("checked_before", [0, 1, 3])
@pytest.mark.parametrize("is_witnessed_beyond", [True, False])
def test_history_that_a_running_store_purges_meanwhile_is_no_damage(
    checked_before: int, is_witnessed_beyond: bool
) -> None:
    """Some files are checked, then history is purged, then the others are looked for."""
    files = MemoryFiles()
    store = LogStore.open(DIRECTORY, replace(QUIET, retention_seconds=0), environment(files))
    for number in range(6):
        put(store, b"key %d" % number, number % 2)
        if number % 2:
            store.rotate()
    if is_witnessed_beyond:
        put(store, b"later")
    store.epoch_file.write(store.commit)

    def check_slowly(checks: FileChecks) -> list[CheckedFile]:
        each = list(checks.each())
        found = [file for one in each[:checked_before] for file in check_files(files, one, SystemThreads())]
        put(store, b"still later")
        store.compact()
        assert store.purge().files, "there is something to purge"
        return found + [file for one in each[checked_before:] for file in check_files(files, one, SystemThreads())]

    report = verify_with(files, DIRECTORY, check_slowly)
    assert report.is_good, list(map(str, report.findings))
    assert report.chain is not None and report.chain.is_complete
    store.close()
