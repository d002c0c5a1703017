"""Reference model of the log store: the oracle of the simulator.

    begin ──▶ OPEN ──end called──▶ ENDING ──end returned──▶ UNCERTAIN ──wait returned, callback, close──▶ CERTAIN
               │ abort, crash         │ crash: is it there?     │ crash: is it there?
               ▼                      ▼ no        yes ▶ CERTAIN  ▼ no       yes ▶ CERTAIN
              GONE ◀──────────────────┴──────────────────────────┘            and CERTAIN stays, for ever

A session is present whole or not at all, and in order: if a session of epoch e is present, so is every one that ended
in a lower epoch. So a reopened store must show the state after *all sessions up to one epoch*, its own `durable`; this
epoch must not be below any confirmed one, nor below the horizon that other processes may have read. A session that was
missing once must never reappear.

Invariants of epochs: a number stands for one content; new numbers start above every number found on the disk.

Elsewhere: reading a disk (`log_inspection`), driving a store (`simulated_process`, `simulated_machine`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum

from tools.simulator.observations import UNIQUE, RecoveredEntry, ReopenedState, State, Violation, Write, apply, short
from warren.log.settings import EntryKind


class ModelState(Enum):
    OPEN = "open"
    ENDING = "ending"
    UNCERTAIN = "uncertain"
    CERTAIN = "certain"
    GONE = "gone"


THERE_PERHAPS = (ModelState.ENDING, ModelState.UNCERTAIN)


@dataclass(slots=True)
class SessionNote:
    number: int
    stream: str = ""  # of records; else of key-values
    writes: list[Write] = field(default_factory=list)
    standing: ModelState = ModelState.OPEN
    epoch: int = 0
    order: int = 0  # among all sessions, by their end


class Model:
    """Records operations and promises; checks observations against them."""

    def __init__(self) -> None:
        self.sessions: dict[int, SessionNote] = {}
        self.confirmed = 0  # highest epoch reported as durable
        self.horizon = 0  # highest epoch that another process may have read in the epoch file
        self.decayed: set[int] = set()  # sessions in damaged blocks: a repair may lose them, nothing else may
        self.is_repaired = False  # a repair was begun
        self.taken: dict[str, bytes] = {}  # linked files, which must stay unchanged
        self.is_purged = False  # old entries may be missing from the log; their effect may not
        self._ended = 0
        self._bases: dict[str, list[int]] = {}  # of a stream: where it may be, as the order of a session
        self._contents: dict[tuple[int, int], bytes] = {}

    def copy(self) -> Model:
        """An independent copy."""
        other = copy(self)
        other.sessions = {n: replace(session, writes=list(session.writes)) for n, session in self.sessions.items()}
        other._contents = dict(self._contents)
        other._bases = {name: list(orders) for name, orders in self._bases.items()}
        other.decayed, other.taken = set(self.decayed), dict(self.taken)
        return other

    # -- operations ----------------------------------------------------------------------------------------------

    def begin(self, number: int, stream: str = "") -> None:
        self.sessions[number] = SessionNote(number, stream)

    def write(self, number: int, write: Write) -> None:
        self.sessions[number].writes.append(write)

    def ending(self, number: int) -> None:
        self.sessions[number].standing = ModelState.ENDING

    def ended(self, number: int, epoch: int) -> None:
        self._end(self.sessions[number], epoch, ModelState.CERTAIN if epoch <= self.confirmed else ModelState.UNCERTAIN)

    def aborted(self, number: int) -> None:
        self.sessions[number].standing = ModelState.GONE

    def confirm(self, epoch: int) -> None:
        """This epoch was reported as durable, and with it everything before."""
        self.confirmed = max(self.confirmed, epoch)
        for session in self._of(ModelState.UNCERTAIN):
            if session.epoch <= epoch:
                session.standing = ModelState.CERTAIN

    def confirm_ended(self) -> None:
        """The store was closed: whatever had ended is durable."""
        self.confirm(max((session.epoch for session in self._of(ModelState.UNCERTAIN)), default=0))

    def base_moves(self, stream: str, number: int) -> None:
        """A base is about to move to this session: from now on it may have, once it has it must have."""
        self._bases.setdefault(stream, [0]).append(self.sessions[number].order)

    def base_moved(self, stream: str) -> None:
        self._bases[stream] = self._bases[stream][-1:]

    def witnessed(self, horizon: int) -> None:
        self.horizon = max(self.horizon, horizon)

    def decay(self, writes: Iterable[Write]) -> None:
        """A block with these entries is damaged. A small session is in one block; its puts identify it."""
        hit = {write for write in writes if write.kind is EntryKind.PUT}
        self.decayed |= {session.number for session in self.sessions.values() if hit.intersection(session.writes)}

    def process_died(self) -> None:
        for session in self._of(ModelState.OPEN):
            session.standing = ModelState.GONE

    # -- observations --------------------------------------------------------------------------------------------

    def compare(self, seen: ReopenedState) -> None:
        """Check a reopened store. Uncertain sessions become certain or gone."""
        self._check_epochs(seen)
        self._check_confirmed(seen)
        self._learn_epochs(seen.entries)
        for session in self._of(*THERE_PERHAPS):
            is_there = session.standing is ModelState.UNCERTAIN and session.epoch <= seen.durable
            session.standing = ModelState.CERTAIN if is_there else ModelState.GONE
        self._check_entries(seen.entries)
        self.check_state(seen.state)
        self._check_records(seen.records)
        self.confirmed = self.horizon = seen.durable

    def check_state(self, state: State) -> None:
        """Is this the state after everything that is certain?"""
        expected = self.expected()
        if state == expected:
            return
        if self.is_repaired and state == self.expected(without=self.decayed):
            self._drop_decayed()
            return
        wrong = sorted(place for place in expected.keys() | state.keys() if expected.get(place) != state.get(place))
        differences = "; ".join(f"{p} is {short(state.get(p))} instead of {short(expected.get(p))}" for p in wrong[:4])
        raise Violation(f"the state read back is wrong in {len(wrong)} places: {differences}")

    def expected(self, without: Container[int] = ()) -> State:
        """The state after everything that is certain."""
        state: State = {}
        for session in self._in_order():
            if session.number not in without:
                for write in session.writes:
                    apply(state, write)
        return state

    def _check_epochs(self, seen: ReopenedState) -> None:
        if seen.first_epoch <= max(seen.highest_on_disk, seen.durable):
            raise Violation(
                f"epoch {seen.first_epoch} is used again: blocks of epoch {seen.highest_on_disk} are on the disk, "
                f"{seen.durable} is durable"
            )
        for (timeline, epoch), digest in seen.contents.items():
            if self._contents.setdefault((timeline, epoch), digest) != digest:
                raise Violation(f"epoch {epoch} was used twice: its closing block is not the one seen before")

    def _check_confirmed(self, seen: ReopenedState) -> None:
        if seen.durable < self.confirmed:
            lost = [s.number for s in self._of(ModelState.CERTAIN) if s.epoch > seen.durable]
            raise Violation(
                f"epoch {self.confirmed} was confirmed, only {seen.durable} is durable: sessions {lost} are lost"
            )
        if seen.durable < self.horizon:
            raise Violation(f"the epoch file showed others epoch {self.horizon}, only {seen.durable} is durable")

    def _learn_epochs(self, entries: Iterable[RecoveredEntry]) -> None:
        """A session whose `end` never returned may be present nevertheless: then the log has its epoch."""
        ending = {session.writes[0]: session for session in self._of(ModelState.ENDING) if session.writes}
        for found in entries:
            if (session := ending.pop(found.write, None)) is not None:
                self._end(session, found.epoch, ModelState.UNCERTAIN)

    def _check_entries(self, entries: Iterable[RecoveredEntry]) -> None:
        """Nothing in the log that was never written or is gone, and no session by halves."""
        owners = {w: s for s in self.sessions.values() for w in s.writes if w.kind in UNIQUE}
        found_puts: dict[int, int] = {}
        for found in entries:
            if found.write.kind not in UNIQUE:
                continue
            owner = owners.get(found.write)
            if owner is None:
                raise Violation(f"the log has {found.write} in epoch {found.epoch}, which no session wrote")
            if owner.standing is not ModelState.CERTAIN or owner.epoch != found.epoch:
                raise Violation(
                    f"session {owner.number} of epoch {owner.epoch} is {owner.standing.value}, "
                    f"but the log has {found.write} in epoch {found.epoch}"
                )
            found_puts[owner.number] = found_puts.get(owner.number, 0) + 1
        if not self.is_purged:
            self._check_whole(found_puts)

    def _check_records(self, records: Mapping[str, list[bytes]]) -> None:
        """Each stream has all its records from where its base is, or may be, on."""
        for name in {session.stream for session in self._of(ModelState.CERTAIN)} - {""} | records.keys():
            mine = [session for session in self._in_order() if session.stream == name]
            for base in self._bases.get(name, [0]):
                wanted = [write.value for session in mine if session.order >= base for write in session.writes]
                if wanted == records.get(name, []):
                    self._bases[name] = [base]
                    break
            else:
                raise Violation(f"stream {name} shows {[short(value) for value in records.get(name, [])]}")

    def _in_order(self) -> list[SessionNote]:
        return sorted(self._of(ModelState.CERTAIN), key=lambda session: (session.epoch, session.order))

    def _check_whole(self, found_puts: Mapping[int, int]) -> None:
        for session in self._of(ModelState.CERTAIN):
            wanted = sum(write.kind in UNIQUE for write in session.writes)
            found = found_puts.get(session.number, 0)
            if found != wanted and session.number not in self.decayed:
                raise Violation(
                    f"session {session.number} (epoch {session.epoch}) has {found} of its {wanted} puts in the log"
                )

    # -- helpers -------------------------------------------------------------------------------------------------

    def _of(self, *standings: ModelState) -> list[SessionNote]:
        return [session for session in self.sessions.values() if session.standing in standings]

    def _drop_decayed(self) -> None:
        """Drop sessions whose loss was reported: from now on they count as never written."""
        for number in self.decayed:
            self.sessions[number].standing = ModelState.GONE
        self.decayed = set()

    def _end(self, session: SessionNote, epoch: int, standing: ModelState) -> None:
        self._ended += 1
        session.epoch, session.order, session.standing = epoch, self._ended, standing
