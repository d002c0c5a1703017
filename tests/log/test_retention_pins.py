"""Pins: leases that any process can take, and a reader that is never left with a gap."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.log.upkeep_stage import DIRECTORY, QUIET, Stage, numbers, put, rows, sealed
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.environment import SystemClock, SystemRandom
from warren.base.errors import Gone, Refused
from warren.base.ids import Epoch, FileNumber, TimelineId
from warren.files.local import LocalFiles
from warren.files.protocol import Files, join
from warren.log.file_record import FileRecord, FileState
from warren.log.manifest import read_manifest
from warren.log.read.blocks import walk
from warren.log.retention import Pin, Pins
from warren.log.store import LogStore
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import MemoryFiles

Result = TypeVar("Result")
HOME = f"{DIRECTORY}/pins"


def pins_of(stage: Stage, files: Files | None = None, seed: int = 9) -> Pins:
    """A reader's own way to the pins, apart from the store's."""
    return Pins(files or stage.disk, DIRECTORY, stage.clock, SeededRandom(seed))


def compacted_away(store: LogStore, count: int = 1) -> list[FileRecord]:
    """Log files that are not needed any more."""
    for number in range(count):
        put(store, {b"%d" % number: bytes(100)})
        store.rotate()
    free = sealed(store)
    store.compact()
    return free


# -- taking, renewing, letting go --------------------------------------------------------------------------------------


def test_a_pinned_file_stays_until_the_pin_is_released() -> None:
    stage = Stage()
    with stage.store() as store:
        [record] = compacted_away(store)
        reader = pins_of(stage)
        pin, state = reader.take("reader", 60.0, numbers=[record.number])
        assert record.number in state.files
        assert store.purge().files == ()
        reader.release(pin)
        assert store.purge().files == (record.name,)


def test_a_pin_from_an_epoch_on_holds_what_comes_later_too() -> None:
    stage = Stage()
    with stage.store() as store:
        [first] = compacted_away(store)
        second = compacted_away(store)[-1]
        pin, _ = pins_of(stage).take("reader", 60.0, from_epoch=second.first_epoch)
        later = compacted_away(store)[-1]
        assert store.purge().files == (first.name,)
        assert set(numbers([second, later])) <= set(store.manifest.state.files)
        assert store.manifest.state.horizon < second.first_epoch
        store.pins.release(pin)
        store.purge()
        assert not sealed(store)


def test_a_pin_that_is_not_renewed_lapses_and_its_reader_gets_the_horizon() -> None:
    stage = Stage()
    with stage.store() as store:
        [record] = compacted_away(store)
        reader = pins_of(stage)
        pin, _ = reader.take("slow reader", 60.0, from_epoch=record.first_epoch)
        stage.advance(60)
        assert store.purge().files == (), "the last nanosecond of it counts"
        stage.advance(1)
        assert store.purge().files == (record.name,)
        assert stage.disk.list(HOME) == []
        horizon = store.manifest.state.horizon
        with pytest.raises(Gone, match=f"slow reader has lapsed: horizon is {horizon}") as caught:
            reader.renew(pin, 60.0)
        assert f"epoch {horizon + 1}" in caught.value.hint
        with pytest.raises(Gone, match=f"epoch {record.first_epoch} is gone, horizon is {horizon}"):
            reader.take("slow reader", 60.0, from_epoch=record.first_epoch)
        with pytest.raises(Gone, match=f"log file {record.number} is gone, horizon is {horizon}"):
            reader.take("slow reader", 60.0, numbers=[record.number])
        assert stage.disk.list(HOME) == [], "a reader that was refused leaves no pin"


def test_a_pin_that_is_renewed_in_time_holds_on() -> None:
    stage = Stage()
    with stage.store() as store:
        [record] = compacted_away(store)
        reader = pins_of(stage)
        pin, _ = reader.take("reader", 60.0, numbers=[record.number])
        for _ in range(5):
            stage.advance(59)
            pin = reader.renew(pin, 60.0)
            assert store.purge().files == ()
        assert len(stage.disk.list(HOME)) == 1
        stage.advance(61)
        assert store.purge().files == (record.name,)


@pytest.mark.parametrize("step_seconds", [86_400, -86_400])
def test_a_step_of_the_wall_clock_lapses_no_pin_and_prolongs_none(step_seconds: int) -> None:
    """Neither for the owner, who has seen the pin, nor for the reader, who renews it."""
    stage = Stage()
    with stage.store() as store:
        [record] = compacted_away(store)
        reader = pins_of(stage)
        pin, _ = reader.take("reader", 60.0, numbers=[record.number])
        assert store.purge().files == ()
        stage.clock.set_wall_ns(stage.clock.wall_ns() + step_seconds * 10**9)
        assert store.purge().files == (), "the owner has seen it before the step"
        assert reader.seconds_left(pin) == 60.0
        stage.advance(50)
        pin = reader.renew(pin, 60.0)
        stage.advance(50)
        assert store.purge().files == (), "it was renewed"
        stage.advance(11)
        assert store.purge().files == (record.name,)
        with pytest.raises(Gone):
            reader.renew(pin, 60.0)


def test_a_revoked_pin_cannot_be_renewed() -> None:
    stage = Stage()
    with stage.store() as store:
        [record] = compacted_away(store)
        reader = pins_of(stage)
        pin, _ = reader.take("reader", 60.0, numbers=[record.number])
        store.pins.revoke(pin.id)
        store.pins.revoke(pin.id)
        with pytest.raises(Gone, match="has lapsed: horizon is 0"):
            reader.renew(pin, 60.0)
        assert store.purge().files == (record.name,)


def test_a_pin_holds_back_no_more_bytes_than_it_may() -> None:
    stage = Stage()
    with stage.store() as store:
        first, second = compacted_away(store, 2)
        reader = pins_of(stage)
        modest, _ = reader.take("modest", 60.0, numbers=[first.number], bytes_max=first.end)
        greedy, _ = reader.take("greedy", 60.0, numbers=numbers([first, second]), bytes_max=first.end)
        assert store.purge().files == (second.name,)
        assert [pin.reader for pin in store.pins.live()] == ["modest"]
        with pytest.raises(Gone, match="greedy has lapsed"):
            reader.renew(greedy, 60.0)
        assert reader.renew(modest, 60.0).id == modest.id


def test_pins_are_listed_lapsed_ones_too_and_unknown_files_are_passed_over() -> None:
    stage = Stage()
    with stage.store() as store:
        reader = pins_of(stage)
        reader.take("short", 1.0)
        reader.take("long", 60.0)
        stage.advance(2)
        for name in ("README", "0123456789abcdef.json.tmp"):
            stage.disk.create(join(HOME, name)).close()
        assert sorted(pin.reader for pin in store.pins.every()) == ["long", "short"]
        assert [pin.reader for pin in store.pins.live()] == ["long"]
        assert [pin.reader for pin in store.pins.drop_lapsed()] == ["short"]
        assert [pin.reader for pin in store.pins.every()] == ["long"]


@pytest.mark.parametrize("contents", [b"", b"{", b'{"id": 1}', b'{"files": [], "colour": 7}'])
def test_a_pin_that_cannot_be_read_stops_the_purge_rather_than_the_reader(contents: bytes) -> None:
    stage = Stage()
    with stage.store() as store:
        compacted_away(store)
        path = join(HOME, "0123456789abcdef.json")
        stage.disk.create(path).close()
        stage.disk.set_contents(path, contents)
        before = store.manifest.state
        with pytest.raises(Refused, match=f"{path} is not a pin") as caught:
            store.purge()
        assert caught.value.hint == "remove it if no reader owns it"
        assert store.manifest.state == before
        stage.disk.remove(path)
        assert store.purge().files


def test_a_pin_is_written_as_its_page_says() -> None:
    stage = Stage()
    with stage.store() as store:
        pin, _ = pins_of(stage).take("spark", 60.0, Epoch(3), [FileNumber(1)], 4096)
        [name] = stage.disk.list(HOME)
        assert name == f"{pin.id}.json"
        assert json.loads(stage.disk.contents(join(HOME, name))) == {
            "id": pin.id,
            "reader": "spark",
            "timeline": store.manifest.state.timeline.id,
            "from_epoch": 3,
            "files": [1],
            "expires_ns": stage.clock.wall_ns() + 60 * 10**9,
            "bytes_max": 4096,
        }
        assert store.pins.every() == [pin]


def test_a_reader_of_another_store_or_of_an_abandoned_branch_is_refused() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        reader = pins_of(stage)
        own = store.manifest.state.timeline.id
        reader.take("reader", 60.0, from_epoch=Epoch(1), timeline=own)
        with pytest.raises(Refused, match="not part of this store's past"):
            reader.take("other", 60.0, from_epoch=Epoch(1), timeline=TimelineId(12345))
        assert len(stage.disk.list(HOME)) == 1


def test_a_pin_can_be_taken_while_the_store_is_stopped() -> None:
    stage = Stage()
    with stage.store() as store:
        [record] = compacted_away(store)
    pin, state = pins_of(stage).take("backup", 60.0, numbers=[record.number])
    assert state == read_manifest(stage.disk, DIRECTORY)
    with stage.store() as store:
        assert store.purge().files == ()
        assert [stored.id for stored in store.pins.live()] == [pin.id]


TAKE_A_PIN = """
import sys
from warren.base.environment import SystemClock, SystemRandom
from warren.files.local import LocalFiles
from warren.log.retention import Pins

pins = Pins(LocalFiles(), sys.argv[1], SystemClock(), SystemRandom())
pin, state = pins.take("another process", 600.0, from_epoch=1)
print(pin.id, len(state.files))
"""


def test_another_process_takes_a_pin_beside_the_running_store(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with LogStore.open(directory, QUIET) as store:
        [record] = compacted_away(store)
        reported = subprocess.run(
            [sys.executable, "-c", TAKE_A_PIN, directory], capture_output=True, check=True, text=True
        )
        identity, files = reported.stdout.split()
        assert int(files) == len(store.manifest.state.files)
        assert [(pin.id, pin.reader) for pin in store.pins.live()] == [(identity, "another process")]
        assert store.purge().files == ()
        assert (tmp_path / "log" / record.name).exists()
        Pins(LocalFiles(), directory, SystemClock(), SystemRandom()).revoke(identity)
        assert store.purge().files == (record.name,)
        assert not (tmp_path / "log" / record.name).exists()


# -- a reader and a purge at the same time -----------------------------------------------------------------------------


class InOrder(FaultyFiles):
    """A disk on which reader and purge meet in a given order.

    R1 the reader's pin is there    R2 the reader reads the manifest
    P1 `doomed` is there            P2 the purge reads the pins
    """

    def __init__(self, inner: MemoryFiles, order: tuple[str, ...], threads: SteppedThreads) -> None:
        super().__init__(inner, pause=threads.pause)
        self.order = order
        self.done: list[str] = []
        self._threads = threads
        self._has_chosen = False  # the purge has chosen what to doom

    def _read_operation(self, operation: str, path: str, act: Callable[[], Result]) -> Result:
        return self._in_turn(operation, path, lambda: FaultyFiles._read_operation(self, operation, path, act))

    def _change(
        self, operation: str, paths: tuple[str, ...], act: Callable[[], Result], *rest: Callable[..., None] | None
    ) -> Result:
        change: Callable[..., Result] = super()._change
        return self._in_turn(operation, paths[-1], lambda: change(operation, paths, act, *rest))

    def _in_turn(self, operation: str, path: str, act: Callable[[], Result]) -> Result:
        event = self._event(operation, path)
        self._has_chosen = self._has_chosen or event == "P1"
        while event and (not self._has_chosen or self.order[len(self.done)] != event):
            self._threads.pause()
        result = act()
        if event:
            self.done.append(event)
        return result

    def _event(self, operation: str, path: str) -> str:
        actor = self._threads._turns.current
        match actor.name if actor else "", operation, path.rpartition("/")[2]:
            case "reader", "rename", name if name.endswith(".json"):
                return "R1"
            case "reader", "size", "manifest" if "R1" in self.done and "R2" not in self.done:
                return "R2"
            case "purge", "write", "manifest" if "P1" not in self.done:
                return "P1"
            case "purge", "list", "pins" if "P1" in self.done and "P2" not in self.done:
                return "P2"
        return ""


ORDERS = [
    ("R1", "R2", "P1", "P2"),
    ("R1", "P1", "R2", "P2"),
    ("R1", "P1", "P2", "R2"),
    ("P1", "R1", "R2", "P2"),
    ("P1", "R1", "P2", "R2"),
    ("P1", "P2", "R1", "R2"),
]


def meet(stage: Stage, threads: SteppedThreads, files: FaultyFiles, by_number: bool) -> tuple[Pin | None, list[str]]:
    """Let a reader and a purge run at once; the reader's pin if it got one, and what it may read by it."""

    def body() -> tuple[Pin | None, list[str]]:
        store = LogStore.open(DIRECTORY, stage.settings, stage.environment(files, threads))
        free = compacted_away(store, 2)
        received: list[tuple[Pin, list[str]]] = []
        refusals: list[tuple[str, int]] = []

        def read() -> None:
            try:
                wanted = {"numbers": numbers(free)} if by_number else {"from_epoch": free[0].first_epoch}
                pin, state = pins_of(stage, files).take("reader", 600.0, **wanted)
            except Gone as gone:
                horizon = read_manifest(stage.disk, DIRECTORY).horizon
                refusals.append((gone.what, horizon))
                return
            received.append((pin, [state.files[record.number].name for record in free]))
            assert all(state.files[record.number].state is FileState.SEALED for record in free)

        running = [threads.start("reader", read), threads.start("purge", lambda: keep(store.purge()))]
        for one in running:
            one.join()
        for what, horizon in refusals:
            assert what.endswith(f"horizon is {horizon}") and horizon >= free[-1].last_epoch
        if received:
            assert all(is_whole(stage.disk, record) for record in free), "the reader holds a pin, the bytes are gone"
        store.purge()
        assert received or not sealed(store), "not pinned: purged"
        return received[0] if received else (None, [])

    remaining: list[object] = []
    keep = remaining.append
    return threads.run(body)


def is_whole(disk: MemoryFiles, record: FileRecord) -> bool:
    path = join(DIRECTORY, record.name)
    return disk.exists(path) and walk(memoryview(disk.contents(path)), record.identity, 0, record.end).end == record.end


@pytest.mark.parametrize("by_number", [False, True])
@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_reader_and_purge_meet_in_every_order_and_the_reader_is_never_left_with_a_gap(
    order: tuple[str, ...], by_number: bool
) -> None:
    """Each writes before it reads: a reader that read before the doom continues, and the purge sees its pin."""
    stage = Stage()
    threads = SteppedThreads(1, stage.clock)
    files = InOrder(stage.disk, order, threads)
    pin, _ = meet(stage, threads, files, by_number)
    assert tuple(files.done) == order
    assert (pin is not None) == (order == ("R1", "R2", "P1", "P2"))


def test_reader_and_purge_at_any_seed() -> None:
    outcomes = set()
    for seed in range(60):
        stage = Stage()
        threads = SteppedThreads(seed, stage.clock, switch_probability=0.4)
        files = FaultyFiles(stage.disk, pause=threads.pause, on_cut=threads.cut_power)
        pin, _ = meet(stage, threads, files, by_number=seed % 2 == 0)
        outcomes.add(pin is not None)
    assert outcomes == {True, False}, "the seeds show both outcomes"


def test_a_pin_that_is_renewed_while_it_lapses_is_either_held_or_refused() -> None:
    """A purge that took the old pin for lapsed must not meet a reader who believes in the new one."""
    outcomes = {renewed_beside_a_purge(seed) for seed in range(120)}
    assert outcomes == {True, False}, "the seeds show both outcomes"


def renewed_beside_a_purge(seed: int) -> bool:
    """Whether the reader could renew to the end. Whenever a renewal succeeded, its files are there."""
    stage = Stage()
    threads = SteppedThreads(seed, stage.clock, switch_probability=0.5)
    files = FaultyFiles(stage.disk, pause=threads.pause)

    def body() -> bool:
        store = LogStore.open(DIRECTORY, stage.settings, stage.environment(files, threads))
        free = compacted_away(store, 2)
        reader = pins_of(stage, files)
        pin, _ = reader.take("reader", 8e-6, numbers=numbers(free))
        renewals = [pin]

        def renew() -> None:
            try:
                while len(renewals) < 6:
                    renewals.append(reader.renew(renewals[-1], 8e-6))
                    if stage.clock.wall_ns() <= renewals[-1].expires_ns:
                        assert all(is_whole(stage.disk, record) for record in free)
            except Gone:
                pass

        def purge() -> None:
            for _ in range(4):
                stage.advance(3e-6)
                store.purge()

        for one in [threads.start("reader", renew), threads.start("purge", purge)]:
            one.join()
        return len(renewals) == 6

    return threads.run(body)


def test_a_renewal_that_takes_longer_than_the_pin_lived_is_refused_and_leaves_no_pin() -> None:
    """A purge may have considered it lapsed while its renewal was on the way."""
    stage = Stage()
    with stage.store() as store:
        [record] = compacted_away(store)
        pin, _ = pins_of(stage).take("slow disk", 60.0, numbers=[record.number])
        slow = FaultyFiles(stage.disk, pause=lambda: stage.advance(10))
        with pytest.raises(Gone, match="slow disk has lapsed"):
            pins_of(stage, slow).renew(pin, 600.0)
        assert stage.disk.list(HOME) == []
        assert store.purge().files == (record.name,)


def test_a_pin_that_is_released_while_pins_are_read_is_no_error() -> None:
    stage = Stage()
    with stage.store() as store:
        pin, _ = pins_of(stage).take("reader", 60.0)
        listed = FaultyFiles(stage.disk)
        found = pins_of(stage, listed)

        def release() -> None:
            listed.pause = None
            pins_of(stage).release(pin)

        original = listed.list

        def list_then_release(directory: str) -> list[str]:
            seen = original(directory)
            listed.pause = release
            return seen

        listed.list = list_then_release  # type: ignore[method-assign]
        assert found.every() == []
        assert rows(store.refresh()) == {}
