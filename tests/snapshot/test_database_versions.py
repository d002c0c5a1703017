"""Writers who give versions of their own and move the safe snapshot version themselves, against a list of entries.

    storage 1    versions as they come: (epoch, n)                                 visible as soon as they are durable
    storage 2    versions that are still to come, out of order over both channels  visible when the safe one is there
    storage 3    puts of any version, also long past the safe one (late)           … the newest of a key counts

Tombstones are given in the first two only: when everything up to one is applied, the store forgets it, and a late put
that is older than it would count. Always true of a model of three lines: what is visible is, for each key, the newest
entry up to the safe snapshot version, unless a newer clear took it; and now is the same without that limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.snapshot.database_stage import DatabaseStage, State, rows, safe_rows
from warren.base.ids import Epoch
from warren.snapshot.puller.protocol import ReflectionControl
from warren.snapshot.reflection import Mode
from warren.snapshot.store import Version
from warren.testing.memory_files import CrashModel

ORDINARY, AHEAD, ANY = 1, 2, 3
MAJOR = 10**6  # of all versions that are given: far above any epoch
KEYS = st.sampled_from([b"a", b"b", b"c"])
CHANNELS = st.integers(0, 1)
KINDS = st.sampled_from(["put", "put", "put", "remove", "clear"])
VALUES = st.integers(0, 300).map(lambda size: b"x" * size)


class Written(NamedTuple):
    storage: int
    kind: str
    key: bytes
    value: bytes
    version: Version
    epoch: Epoch


class VersionMachine(RuleBasedStateMachine):
    mode = Mode.NOTIFY
    bulk_bytes = 0

    @initialize(seed=st.integers(0, 1 << 20))
    def begin(self, seed: int) -> None:
        self.seed = seed
        self.stage = DatabaseStage(self.mode, seed, buffer_bytes=1200, flush_bytes=2000, bulk_bytes=self.bulk_bytes)
        self.database = self.stage.open()
        self.written: list[Written] = []
        self.used: set[int] = {0}
        self.highest = 0  # the highest that the safe snapshot version was ever moved to
        self.flushed = (0, 0)  # what it was at the last flush

    @property
    def reflection(self) -> ReflectionControl:
        assert self.database.reflection is not None
        return self.database.reflection

    @rule(channel=CHANNELS, changes=st.lists(st.tuples(KINDS, KEYS, VALUES), min_size=1, max_size=4))
    def write(self, channel: int, changes: list[tuple[str, bytes, bytes]]) -> None:
        self._session(channel, [(ORDINARY, kind, key, value, None) for kind, key, value in changes])

    @rule(
        channel=CHANNELS,
        changes=st.lists(st.tuples(KINDS, KEYS, VALUES, st.integers(1, 60)), min_size=1, max_size=4),
    )
    def write_ahead(self, channel: int, changes: list[tuple[str, bytes, bytes, int]]) -> None:
        entries = [(AHEAD, kind, key, value, self._unused(self.highest + ahead)) for kind, key, value, ahead in changes]
        self._session(channel, entries)

    @rule(channel=CHANNELS, key=KEYS, value=VALUES, minor=st.integers(1, 200))
    def write_any(self, channel: int, key: bytes, value: bytes, minor: int) -> None:
        self._session(channel, [(ANY, "put", key, value, self._unused(minor))])

    @rule(further=st.integers(-10, 30))
    def advance(self, further: int) -> None:
        """Back, too: it never goes there."""
        before, highest = self.reflection.safe, max(1, self.highest + further)
        self.reflection.advance((MAJOR, highest))
        self.highest = max(self.highest, highest)
        assert self.reflection.safe >= max(before, (MAJOR, highest))

    @rule(verb=st.sampled_from(["flush", "pause", "resume", "rotate", "purge", "persist"]))
    def look_after(self, verb: str) -> None:
        if verb == "persist":
            self.database._buffer.persist()
        elif verb in ("rotate", "purge"):
            getattr(self.database.log, verb)()
        else:
            getattr(self.reflection, verb)()
        if verb == "flush":
            self.flushed = self.database.store.applied.version

    @rule(how=st.sampled_from(["stop", "kill", *CrashModel]))
    def open_again(self, how: str | CrashModel) -> None:
        """A stop reflects up to the safe version, a crash goes back to a flushed one, or a little further."""
        if how == "stop":
            self.flushed = max(self.flushed, self.reflection.safe)
            self.database.close()
        else:
            self.database.abandon()
            self.stage.crash(how if isinstance(how, CrashModel) else CrashModel.ALL, self.seed + len(self.written))
        self.database = self.stage.open()
        assert not self.database.problems

    @invariant()
    def shows_what_is_up_to_the_safe_version(self) -> None:
        if not hasattr(self, "database"):
            return
        assert rows(self.database) == visible(self.written, (MAJOR, MAJOR)), "now is everything that was written"
        found, applied = safe_rows(self.database), self.database.store.applied
        assert self.reflection.failure is None
        assert found == visible(self.written, applied.version)
        assert rows(self.database) == visible(self.written, (MAJOR, MAJOR)), "also when the store has what it may take"
        assert self.flushed <= applied.version <= self.reflection.safe
        assert applied.epoch <= self.database.log.durable
        waiting = [entry.epoch for entry in self.written if entry.version > applied.version]
        assert all(applied.epoch < epoch for epoch in waiting), "what waits would not be read again"

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.abandon()

    def _unused(self, minor: int) -> Version:
        """A version names one entry."""
        while minor in self.used:
            minor += 1
        self.used.add(minor)
        return MAJOR, minor

    def _session(self, channel: int, entries: Sequence[tuple[int, str, bytes, bytes, Version | None]]) -> None:
        session = self.database.begin(channel)
        for storage, kind, key, value, version in entries:
            if kind == "put":
                session.put(storage, key, value, version)
            elif kind == "remove":
                session.remove(storage, key, version)
            else:
                session.clear_storage(storage, version)
        epoch = session.commit()
        for number, (storage, kind, key, value, version) in enumerate(entries):
            self.written.append(Written(storage, kind, key, value, version or (epoch, number), epoch))


def visible(written: list[Written], safe: Version) -> State:
    found: State = {}
    for entry in sorted((entry for entry in written if entry.version <= safe), key=lambda entry: entry.version):
        if entry.kind == "put":
            found[entry.storage, entry.key] = entry.value
        elif entry.kind == "remove":
            found.pop((entry.storage, entry.key), None)
        else:
            found = {name: value for name, value in found.items() if name[0] != entry.storage}
    return found


@pytest.mark.parametrize(
    ("mode", "bulk_bytes"), [(mode, bulk) for mode in (Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED) for bulk in (0, 400)]
)
def test_the_store_shows_the_model_up_to_the_safe_version_whatever_happens(mode: Mode, bulk_bytes: int) -> None:
    """VO-03, X-04: versions out of order over channels, a safe version that moves, spills, persists, crashes."""
    limits = settings(
        max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    machine = type("Machine", (VersionMachine,), {"mode": mode, "bulk_bytes": bulk_bytes})
    run_state_machine_as_test(machine, settings=limits)
