"""Histories of a store for hypothesis: sessions on several channels, clears, tombstones, rotations, compactions,
purges, stops and power cuts; and a model that knows what must be left after any epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.log.upkeep_stage import Stage
from warren.log.session import Session
from warren.log.store import LogStore
from warren.testing.memory_files import CrashModel

Change = tuple[str, int, bytes, bytes]  # kind, storage, key, value
State = dict[tuple[int, bytes], bytes]

_KEYS = st.sampled_from([b"", b"a", b"a\0", b"key", b"key-1", b"key-2" * 9, b"\xff" * 8, b"\xff" * 9])
_CHANGES = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 3), _KEYS, st.binary(max_size=40)),
    st.tuples(st.just("put"), st.integers(1, 3), _KEYS, st.binary(max_size=40)),
    st.tuples(st.just("remove"), st.integers(1, 3), _KEYS, st.just(b"")),
    st.tuples(
        st.sampled_from(["clear_storage", "add_storage", "remove_storage"]),
        st.integers(1, 3),
        st.just(b""),
        st.just(b""),
    ),
)
SESSIONS = st.tuples(st.just("session"), st.integers(0, 1), st.lists(_CHANGES, min_size=1, max_size=6))
_UPKEEP = st.tuples(
    st.sampled_from(["rotate", "compact", "purge", "stop", "kill", "power_cut"]), st.just(0), st.just(list[Change]())
)
STEPS = st.lists(st.one_of(SESSIONS, SESSIONS, SESSIONS, _UPKEEP), min_size=3, max_size=14)
Step = tuple[str, int, list[Change]]


@dataclass(slots=True)
class History:
    """What was committed, epoch by epoch, and the stage it was played on."""

    stage: Stage
    committed: dict[int, list[Change]] = field(default_factory=dict)

    def play(self, steps: list[Step]) -> LogStore:
        store = self.stage.open(channel_count=2)
        for verb, channel, changes in steps:
            if verb == "session":
                self._session(store, channel, changes)
            elif verb in ("rotate", "compact", "purge"):
                getattr(store, verb)()
            else:
                store = self._again(store, verb)
        store.witness()
        return store

    def state_at(self, epoch: int) -> State:
        state: State = {}
        for at in sorted(self.committed):
            state = changed(state, self.committed[at] if at <= epoch else [])
        return state

    def entries(self, first: int, last: int) -> list[tuple[int, str, int, bytes, bytes]]:
        return [
            (epoch, *change)
            for epoch in sorted(self.committed)
            if first <= epoch <= last
            for change in self.committed[epoch]
        ]

    def _session(self, store: LogStore, channel: int, changes: list[Change]) -> None:
        session = store.begin(channel)
        fill(session, changes)
        self.committed[session.commit()] = changes

    def _again(self, store: LogStore, verb: str) -> LogStore:
        if verb == "stop":
            store.close()
        else:
            store.abandon()
        if verb == "power_cut":
            self.stage = self.stage.crashed(CrashModel.REORDERED, len(self.committed))
        return self.stage.open(channel_count=2)


def fill(session: Session, changes: list[Change]) -> None:
    for kind, storage, key, value in changes:
        if kind == "put":
            session.put(storage, key, value)
        elif kind == "remove":
            session.remove(storage, key)
        else:
            getattr(session, kind)(storage)


def changed(state: State, changes: list[Change]) -> State:
    """Later over earlier; a clear takes what is there."""
    state = dict(state)
    for kind, storage, key, value in changes:
        if kind == "put":
            state[storage, key] = value
        elif kind == "remove":
            state.pop((storage, key), None)
        elif kind != "add_storage":
            state = {at: held for at, held in state.items() if at[0] != storage}
    return state
