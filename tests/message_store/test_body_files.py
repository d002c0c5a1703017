"""Both kinds of body files: one suite, run over each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pytest

from tests.log.upkeep_stage import Stage
from warren.base.errors import Damage, Gone
from warren.base.ids import Lsn
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log import pointers
from warren.log.file_record import active_name
from warren.log.store import LogStore
from warren.message_store.body_files import (
    SHARED_BYTES_MAX,
    BodyFiles,
    LogBodyFiles,
    Record,
    TransientBodyFiles,
    grouped,
)
from warren.message_store.body_format import BodyPlace
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import MemoryFiles

CACHE_BYTES = 300_000


@dataclass
class OnStage:
    body_files: LogBodyFiles | TransientBodyFiles
    seal: Callable[[], None]
    disk: MemoryFiles
    environment: Environment

    def damage(self, place: BodyPlace) -> None:
        """One bit of a record's block, behind the header."""
        path = self.body_files.path(place.file)
        file = self.disk.open(path, writable=True)
        was = file.read_at(place.offset + 150, 1)
        file.write_at(place.offset + 150, [bytes([was[0] ^ 1])])
        file.close()


@pytest.fixture(params=["log", "plain"])
def stage(request: pytest.FixtureRequest) -> Iterator[OnStage]:
    upkeep = Stage()
    if request.param == "log":
        with upkeep.store() as log:
            yield OnStage(LogBodyFiles(log, CACHE_BYTES), partial(_rotate, log), upkeep.disk, upkeep.environment())
        return
    body_files = TransientBodyFiles(upkeep.environment(), "transient", 1 << 30, CACHE_BYTES)
    yield OnStage(body_files, body_files._start_file, upkeep.disk, upkeep.environment())
    body_files.close()


def _rotate(log: LogStore) -> None:
    log.rotate()


def records(*values: bytes) -> list[Record]:
    return [Record(b"key of " + value[:9], value) for value in values]


def read(body_files: BodyFiles, place: BodyPlace, value: bytes) -> bytes:
    return bytes(body_files.read(place, len(value)))


VALUES = [b"small", b"", b"x" * 70_000, b"y" * 30_000, b"z" * 30_000, b"w" * 30_000, b"v"]


def test_what_was_appended_is_read_at_its_place_at_once_and_later(stage: OnStage) -> None:
    """MS-03: files that are written at their end, and read anywhere."""
    places = stage.body_files.append(records(*VALUES))
    for _ in range(2):
        assert [read(stage.body_files, place, value) for place, value in zip(places, VALUES, strict=True)] == VALUES
        stage.seal()
    assert all(a.lsn < b.lsn for a, b in pairwise(places)), "a record's LSN is greater than those before it"


def test_small_records_share_a_block_and_a_large_one_has_its_own(stage: OnStage) -> None:
    groups = list(grouped(records(*VALUES)))
    assert [len(group) for group in groups] == [2, 1, 2, 2]
    assert all(sum(len(r.key + r.value) for r in group) <= SHARED_BYTES_MAX or len(group) == 1 for group in groups)
    places = stage.body_files.append(records(*VALUES))
    assert places[0].block == places[1].block
    assert places[2].block not in {place.block for place in places if place is not places[2]}
    assert places[3].block == places[4].block


def test_a_sealed_file_gives_all_its_records_in_order_with_keys_and_links(stage: OnStage) -> None:
    places = stage.body_files.append([Record(b"a", b"1"), Record(b"b", b"2", Lsn(77)), *records(b"x" * 70_000)])
    assert stage.body_files.files() == []
    stage.seal()
    (number,) = stage.body_files.files()
    found = list(stage.body_files.records(number))
    assert [record.place for record in found] == places
    assert [(record.key, record.size_bytes, record.undo_prev) for record in found] == [
        (b"a", 1, 0),
        (b"b", 1, 77),
        (found[2].key, 70_000, 0),
    ]


def test_a_file_is_read_in_windows_and_blocks_that_reach_over_their_end_are_whole(
    stage: OnStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pointers, "WINDOW_BYTES", 10_000)
    values = [bytes([n]) * size for n, size in enumerate((3000, 3000, 9000, 70_000, 5, 9990))]
    places = [place for value in values for place in stage.body_files.append(records(value))]
    stage.seal()
    found = list(stage.body_files.records(places[0].file))
    assert [(record.place, record.size_bytes) for record in found] == [
        (place, len(value)) for place, value in zip(places, values, strict=True)
    ]


def test_a_released_file_goes_and_the_others_stay(stage: OnStage) -> None:
    stored: list[tuple[BodyPlace, bytes]] = []
    for value in (b"first", b"second", b"third"):
        stored += zip(stage.body_files.append(records(value)), [value], strict=True)
        stage.seal()
    before = stage.body_files.files()
    middle = stored[1][0].file
    stage.body_files.release([middle])
    assert stage.body_files.files() == [number for number in before if number != middle]
    for place, value in (stored[0], stored[2]):
        assert read(stage.body_files, place, value) == value
    if isinstance(stage.body_files, LogBodyFiles):
        stage.body_files._log.purge()
    with pytest.raises(Gone):
        read(stage.body_files, *stored[1])


def test_damage_is_reported_with_file_and_offset_and_what_is_beside_it_is_served(stage: OnStage) -> None:
    values = [b"one" * 30_000, b"two" * 30_000]
    places = stage.body_files.append(records(*values))
    stage.seal()
    stage.damage(places[0])
    with pytest.raises(Damage) as caught:
        read(stage.body_files, places[0], values[0])
    assert (caught.value.path, caught.value.offset) == (stage.body_files.path(places[0].file), places[0].offset)
    assert read(stage.body_files, places[1], values[1]) == values[1]
    with pytest.raises(Damage):
        list(stage.body_files.records(places[0].file))


def test_a_record_of_another_size_or_number_than_requested_is_damage(stage: OnStage) -> None:
    (place,) = stage.body_files.append(records(b"value"))
    for wrong in (place, BodyPlace(place.block, 7)):
        with pytest.raises(Damage):
            stage.body_files.read(wrong, 6)


def test_what_lies_beside_a_record_is_not_read_twice(stage: OnStage) -> None:
    values = [b"%d" % n * 100 for n in range(20)]
    places = stage.body_files.append(records(*values))
    assert [read(stage.body_files, place, value) for place, value in zip(places, values, strict=True)] == values
    assert stage.body_files._reader.reads <= 2, "once too early perhaps, and once"


def test_no_more_is_kept_in_memory_than_was_allowed(stage: OnStage) -> None:
    values = [bytes([n]) * 70_000 for n in range(12)]
    for place, value in zip(stage.body_files.append(records(*values)), values, strict=True):
        assert read(stage.body_files, place, value) == value
    assert 0 < stage.body_files._reader._bytes <= CACHE_BYTES


def test_the_transient_heap_is_empty_after_every_start() -> None:
    """MS-02: whatever a crash has left there is deleted, before anything is written."""
    upkeep = Stage()
    body_files = TransientBodyFiles(upkeep.environment(), "transient", 100, CACHE_BYTES)
    for value in (b"a" * 200, b"b" * 200):
        body_files.append(records(value))
    assert len(upkeep.disk.list("transient")) > 1
    again = TransientBodyFiles(upkeep.environment(), "transient", 100, CACHE_BYTES)
    assert again.files() == [] and upkeep.disk.list("transient") == ["bodies.1"]
    assert upkeep.disk.stat("transient/bodies.1").size_bytes == 0
    again.close()
    assert upkeep.disk.list("transient") == []


def test_the_transient_heap_never_syncs() -> None:
    upkeep = Stage()
    files = FaultyFiles(upkeep.disk)
    body_files = TransientBodyFiles(upkeep.environment(files), "transient", 1000, CACHE_BYTES)
    for n in range(9):
        body_files.append(records(bytes([n]) * 400))
    body_files.release(body_files.files()[:2])
    steps = [step.operation for step in files.steps]
    assert "write" in steps and "remove" in steps
    assert "sync" not in steps and "allocate" not in steps


def test_a_file_that_a_rotation_renames_is_read_by_the_handle_and_by_its_new_name() -> None:
    upkeep = Stage()
    with upkeep.store() as log:
        body_files = LogBodyFiles(log, 0)
        values = [b"one" * 30_000, b"two" * 30_000]
        places = body_files.append(records(*values))
        assert read(body_files, places[0], values[0]) == values[0]
        name = active_name(log.stream("bodies").record.channel)
        assert body_files.path(places[0].file) == join("log", name)
        log.rotate()
        assert [read(body_files, place, value) for place, value in zip(places, values, strict=True)] == values
        body_files.close()
        assert [read(body_files, place, value) for place, value in zip(places, values, strict=True)] == values
        assert body_files.path(places[0].file) != join("log", name)


@pytest.mark.parametrize("seed", range(40))
def test_records_can_be_read_at_once_while_files_are_being_changed(seed: int) -> None:
    """A rotation plans a file, and gives it records, before it is created and the manifest knows it."""

    def body(log: LogStore) -> None:
        body_files = LogBodyFiles(log, 0)

        def rotate() -> None:
            for _ in range(4):
                log.rotate()

        def write_and_read() -> None:
            for n in range(6):
                value = b"%d" % n * 900
                (place,) = body_files.append(records(value))
                log.flush()
                assert read(body_files, place, value) == value

        threads = log.environment.threads
        for each in [threads.start("rotating", rotate), threads.start("writing", write_and_read)]:
            each.join()

    Stage().play(seed, body)
