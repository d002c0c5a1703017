"""The whole log store against a plain model, with tiny limits, so that short runs rotate, compact, purge and recycle.

The model keeps what was said, in order: sessions with their epochs, and where a compaction settled them. A state is
found by going through it again: the newest version of a key wins, a clear drops what is older. What a compaction has
settled is forgotten: a removal or a clear that is in it no longer stands against a version older than itself that comes
later. (Versions which the store assigns never do.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.log.upkeep_stage import DIRECTORY, Stage, State, rows
from warren.base.errors import Gone
from warren.base.ids import Epoch, Lsn
from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log.file_record import FileState
from warren.log.manifest import read_manifest
from warren.log.retention import Pin
from warren.log.session import Session
from warren.log.store import LogStore
from warren.testing.fakes import SeededRandom
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel

Version = tuple[int, int]
PAST, FUTURE = 0, 1 << 40  # majors of given versions: older, and newer, than any the store gives

STORAGES = st.integers(1, 2)
KEYS = st.sampled_from([b"a", b"b", b"c"])
VALUES = st.binary(max_size=60)
VERSIONS = st.none() | st.tuples(st.sampled_from([PAST, FUTURE]), st.integers(0, 3))


@dataclass(frozen=True)
class Write:
    kind: str
    storage: int
    key: bytes = b""
    value: bytes = b""
    version: Version | None = None


@dataclass
class Said:
    """A session that has ended."""

    epoch: int
    writes: list[Write]


@dataclass
class Settled:
    """A compaction up to an epoch."""

    epoch: int


@dataclass
class Model:
    story: list[Said | Settled] = field(default_factory=list)

    def state_at(self, epoch: int) -> State:
        entries: dict[tuple[int, bytes], tuple[Version, bytes | None]] = {}
        clears: dict[int, Version] = {}
        order = 0
        for reported in self.story:
            if reported.epoch > epoch:
                continue
            if isinstance(reported, Settled):
                entries = {place: entry for place, entry in entries.items() if entry[1] is not None}
                clears = {}
                continue
            for write in reported.writes:
                order += 1
                self._apply(entries, clears, write, write.version or (reported.epoch, order))
        return {place: value for place, (_, value) in entries.items() if value is not None}

    def _apply(
        self,
        entries: dict[tuple[int, bytes], tuple[Version, bytes | None]],
        clears: dict[int, Version],
        write: Write,
        version: Version,
    ) -> None:
        if write.kind == "clear":
            clears[write.storage] = max(version, clears.get(write.storage, version))
            for place in [p for p, (v, _) in entries.items() if p[0] == write.storage and v < version]:
                del entries[place]
            return
        place = write.storage, write.key
        is_older = place in entries and entries[place][0] > version
        if not is_older and not (write.storage in clears and version < clears[write.storage]):
            entries[place] = version, write.value if write.kind == "put" else None

    def forget_beyond(self, durable: int) -> None:
        """The power went: what was not durable was never said."""
        self.story = [reported for reported in self.story if reported.epoch <= durable]


class StoreMachine(RuleBasedStateMachine):
    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(
            channel_count=3,
            rotate_bytes=1200,
            block_bytes=150,
            max_write_buffers=2,
            rotation_reply_seconds_max=0.0,
            retention_seconds=50.0,
            retention_bytes=4000,
            recycle_files=True,
            snapshot_at_stop=True,
        )
        self.store = self.stage.open()
        self.model = Model()
        self.open: dict[Session, list[Write]] = {}
        self.records: list[tuple[int, Lsn, bytes]] = []  # epoch, LSN, value
        self.pins: list[tuple[Pin, Epoch]] = []
        self.forks = 0

    # -- sessions ----------------------------------------------------------------------------------------------------

    @rule(target=sessions, channel=st.integers(0, 2))
    def begin(self, channel: int) -> Session:
        session = self.store.begin(channel)
        self.open[session] = []
        return session

    @rule(session=sessions, storage=STORAGES, key=KEYS, value=VALUES, version=VERSIONS)
    def put(self, session: Session, storage: int, key: bytes, value: bytes, version: Version | None) -> None:
        if version is not None:
            version = version[0], 3 * version[1]
            value = b"%d.%d" % version  # equal versions have equal values
        self._write(session, Write("put", storage, key, value, version))

    @rule(session=sessions, storage=STORAGES, key=KEYS, version=VERSIONS)
    def remove(self, session: Session, storage: int, key: bytes, version: Version | None) -> None:
        version = None if version is None else (version[0], 3 * version[1] + 1)
        self._write(session, Write("remove", storage, key, b"", version))

    @rule(session=sessions, storage=STORAGES, version=VERSIONS)
    def clear(self, session: Session, storage: int, version: Version | None) -> None:
        version = None if version is None else (version[0], 3 * version[1] + 2)
        self._write(session, Write("clear", storage, b"", b"", version))

    @rule(session=sessions, storage=STORAGES, pairs=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=8))
    def put_many(self, session: Session, storage: int, pairs: list[tuple[bytes, bytes]]) -> None:
        if session in self.open:
            session.put_many(storage, [key for key, _ in pairs], [value for _, value in pairs])
            self.open[session] += [Write("put", storage, key, value) for key, value in pairs]

    @rule(session=consumes(sessions), waits=st.booleans())
    def end(self, session: Session, waits: bool) -> None:
        if session in self.open:
            writes = self.open.pop(session)
            epoch = session.commit() if waits else session.end()
            if writes:
                self.model.story.append(Said(epoch, writes))

    @rule(session=consumes(sessions))
    def abort(self, session: Session) -> None:
        if session in self.open:
            session.abort()
            del self.open[session]

    def _write(self, session: Session, write: Write) -> None:
        if session not in self.open:
            return
        if write.kind == "put":
            session.put(write.storage, write.key, write.value, write.version)
        elif write.kind == "remove":
            session.remove(write.storage, write.key, write.version)
        else:
            session.clear_storage(write.storage, write.version)
        self.open[session].append(write)

    # -- records -----------------------------------------------------------------------------------------------------

    @rule(values=st.lists(VALUES, min_size=1, max_size=3))
    def record(self, values: list[bytes]) -> None:
        session = self.store.stream("messages").begin()
        for value in values:
            session.record(value)
        epoch = session.commit()
        assert session.first_lsn is not None
        self.records += [(epoch, Lsn(session.first_lsn + n), value) for n, value in enumerate(values)]

    @precondition(lambda self: self.records)
    @rule(share=st.floats(0, 1))
    def move_base(self, share: float) -> None:
        self.records = self.records[int(share * (len(self.records) - 1)) :]
        self.store.stream("messages").move_base(self.records[0][1])

    # -- upkeep ------------------------------------------------------------------------------------------------------

    @rule()
    def rotate(self) -> None:
        self.store.rotate()

    @rule()
    def compact(self) -> None:
        result = self.store.compact()
        if result["compacted"]:
            self.model.story.append(Settled(result["epoch"]))

    @rule()
    def purge(self) -> None:
        self.store.purge()

    @rule(seconds=st.integers(1, 40))
    def wait(self, seconds: int) -> None:
        self.stage.advance(seconds)

    @rule()
    def pin(self) -> None:
        epoch = Epoch(max(1, self.store.durable))
        try:
            self.pins.append((self.store.pins.take("reader", 1e6, from_epoch=epoch)[0], epoch))
        except Gone:
            assert epoch <= self.store.manifest.state.horizon

    @precondition(lambda self: self.pins)
    @rule()
    def release(self) -> None:
        self.store.pins.release(self.pins.pop(0)[0])

    # -- looking -----------------------------------------------------------------------------------------------------

    @rule()
    def refresh(self) -> None:
        snapshot = self.store.refresh()
        assert rows(snapshot) == self.model.state_at(snapshot.epoch)
        assert rows(snapshot) == self.model.state_at(1 << 60), "what has ended is in it"

    @rule()
    def read_records(self) -> None:
        stream = self.store.stream("messages")
        found = [(first + n, v) for first, block in stream.read() for n, v in enumerate(block.values.to_list())]
        assert found == [(lsn, value) for _, lsn, value in self.records]

    @precondition(lambda self: self.forks < 3)
    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        horizon, durable = self.store.manifest.state.horizon, self.store.durable
        epoch = Epoch(round(horizon + share * (durable - horizon)))
        cut = self.store.cut(epoch)
        self.forks += 1
        name = f"fork {self.forks}"
        cut.write_to(self.stage.disk, SystemThreads(), self.stage.rng, name)
        self.store.pins.release(cut.pin)
        environment = self.stage.environment()
        fork = LogStore.open(
            name,
            self.stage.settings,
            Environment(environment.files, environment.clock, environment.threads, SeededRandom(7)),
        )
        assert rows(fork.snapshot()) == self.model.state_at(epoch)
        fork.close()

    # -- ending ------------------------------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self._reopen()
        assert rows(self.store.snapshot()) == self.model.state_at(1 << 60), "whatever has ended is there"

    @rule(model=st.sampled_from([ALL, SYNCED, REORDERED]), seed=st.integers(0, 1000))
    def crash(self, model: CrashModel, seed: int) -> None:
        confirmed = self.store.durable
        self.store.abandon()
        self.stage.disk = self.stage.disk.crash(model, SeededRandom(seed))
        self._reopen()
        assert self.store.durable >= confirmed
        self.model.forget_beyond(self.store.durable)
        assert rows(self.store.snapshot()) == self.model.state_at(self.store.durable)

    def _reopen(self) -> None:
        self.open.clear()  # a session does not survive its process
        self.store = self.stage.open()

    def teardown(self) -> None:
        self.store.abandon()

    # -- always ------------------------------------------------------------------------------------------------------

    @invariant()
    def files_are_as_the_manifest_says(self) -> None:
        state, disk = self.store.manifest.state, self.stage.disk
        assert state == read_manifest(disk, DIRECTORY)
        assert state.next_file > max(state.files, default=0)
        assert all(state.files[number].state is FileState.SEALED for number in state.compacted)
        for record in state.files.values():
            if record.state is not FileState.DOOMED:
                assert disk.stat(join(DIRECTORY, record.name)).size_bytes >= record.end
        assert disk.list(f"{DIRECTORY}/staging") == []

    @invariant()
    def epochs_are_in_order(self) -> None:
        state = self.store.manifest.state
        assert state.horizon <= self.store.durable < self.store.commit.open_epoch
        assert all(record.sealed_epoch <= self.store.durable for record in state.of_state(FileState.SEALED))
        assert all(epoch > state.horizon for _, epoch in self.pins), "the horizon has passed a live pin"

    @invariant()
    def recycled_files_have_one_name(self) -> None:
        home = f"{DIRECTORY}/recycle"
        assert all(self.stage.disk.stat(join(home, name)).links == 1 for name in self.stage.disk.list(home))


@pytest.mark.slow
def test_the_store_follows_a_plain_model_through_anything() -> None:
    """Sessions across channels and upkeep, versions out of order, cuts, pins, restarts and power cuts."""
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def story(*reported: Said | Settled) -> Model:
    return Model(list(reported))


def test_the_model_lets_the_newest_version_win_and_forgets_what_is_settled() -> None:
    """The oracle itself, by examples."""

    def put(value: bytes, version: Version | None = None) -> list[Write]:
        return [Write("put", 1, b"a", value, version)]

    def removed(version: Version | None = None) -> list[Write]:
        return [Write("remove", 1, b"a", b"", version)]

    cases: Iterable[tuple[Model, State]] = [
        (story(Said(1, put(b"x")), Said(2, put(b"y"))), {(1, b"a"): b"y"}),
        (story(Said(1, put(b"x", (9, 0))), Said(2, put(b"y"))), {(1, b"a"): b"x"}),
        (story(Said(1, removed((9, 0))), Said(2, put(b"y"))), {}),
        (story(Said(1, removed((9, 0))), Settled(1), Said(2, put(b"y"))), {(1, b"a"): b"y"}),
        (story(Said(1, put(b"x")), Said(2, [Write("clear", 1)]), Said(3, put(b"z"))), {(1, b"a"): b"z"}),
        (story(Said(1, [Write("clear", 1, version=(9, 0))]), Said(2, put(b"y"))), {}),
    ]
    for model, wanted in cases:
        assert model.state_at(9) == wanted
    assert story(Said(1, put(b"x")), Said(5, put(b"y"))).state_at(4) == {(1, b"a"): b"x"}
