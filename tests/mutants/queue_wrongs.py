"""How the seeded faults of the queue side are done: from the real function to the wrong one. See `wrongs`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.mutants.wrongs import Function, Wrapped
from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.durability.log_file import EpochWrite
from warren.queue_index.row_format import ack_key, counters_key, encode_counters, encode_gone, encode_run, run_key

BODIES = "pwal_0003"  # of the message store's channel, behind two for key-values and one for the queue index


def answered_before_it_is_durable(real: Function) -> Function:
    return lambda storage, epoch: None


def run_before_bodies(real: Function) -> Function:
    def bring_to_disk(commit: Any, parts: list[EpochWrite]) -> None:
        overdue, commit.overdue = getattr(commit, "overdue", []), []
        for part in overdue:
            with suppress(Misuse):  # a rotation has closed it meanwhile
                part.participant.sync()
        for part in parts:
            part.participant.write(part)
            handle = part.participant.handle
            if handle is not None and handle.path.endswith(BODIES):
                commit.overdue.append(part)
            else:
                part.participant.sync()

    return bring_to_disk


class WithoutWait(Wrapped):
    """A log whose epochs are not waited for."""

    def wait(self, epoch: Epoch) -> None:
        pass


class WithLog(Wrapped):
    """A database with another log."""

    def __init__(self, inner: Any, log: Any) -> None:
        super().__init__(inner)
        self.log = log


def released_before_written_again(real: Function) -> Function:
    def write_again(cleaning: Any, rows: Sequence[Any]) -> int:
        database = cleaning._database
        cleaning._database = WithLog(database, WithoutWait(database.log))
        try:
            return int(real(cleaning, rows))
        finally:
            cleaning._database = database

    return write_again


def released_before_moved(real: Function) -> Function:
    def move(index: Any, moves: Sequence[Any]) -> list[bool]:
        wait, index._wait = index._wait, lambda epoch: None
        try:
            return list(real(index, moves))
        finally:
            index._wait = wait

    return move


def counters_left_out(real: Function) -> Function:
    def release(queue: Any, slices: list[Any], reason: Any, batch: Any, were_pending: bool = False) -> int:
        return int(queue._dequeue(slices, reason, batch, were_pending))

    return release


def write_rows(session: Any, place: Any, of_place: Any, has_acks: bool, has_removes: bool) -> int:
    """As it is in the product, but for what is left out."""
    queue, level = place.queue, place.level
    for first, (run, contents) in of_place.published.items():
        session.put(queue, run_key(level, first), encode_run(run, contents))
    entries = 0
    for first, gone in of_place.gone.items() if has_acks else ():
        session.put(queue, ack_key(level, first), encode_gone(gone))
        entries += 1
    for first, may_have_ack_row in of_place.removed.items():
        if has_removes:
            session.remove(queue, run_key(level, first))
            entries += 1
        if may_have_ack_row:
            session.remove(queue, ack_key(level, first))
            entries += 1
    if of_place.counters is not None:
        session.put(queue, counters_key(level), encode_counters(of_place.counters))
        entries += 1
    return entries


def ack_row_left_out(real: Function) -> Function:
    return lambda session, place, of_place: write_rows(session, place, of_place, has_acks=False, has_removes=True)


def remove_left_out(real: Function) -> Function:
    return lambda session, place, of_place: write_rows(session, place, of_place, has_acks=True, has_removes=False)


def moved_in_two_sessions(real: Function) -> Function:
    def deliver(dead_letters: Any, work: Any) -> None:
        _ended(work)
        real(dead_letters, work)
        _ended(work)

    return deliver


def _ended(work: Any) -> None:
    """What was done so far is a session of its own, and durable."""
    changes, work._batch = work._batch, None
    if changes is not None:
        changes._begin.func.__self__.wait(changes.end())  # a partial of `LogWriter.begin`


def transients_stay(real: Function) -> Function:
    def delete_everything(body_files: Any) -> None:
        body_files._environment.files.make_directories(body_files._directory)

    return delete_everything


def clean_stop_stays(real: Function) -> Function:
    def variable(storage: Any, wanted: Any) -> Any:
        return real(storage, wanted._replace(is_fresh=True))  # so that it need not go on from anything

    return variable


def clean_stop_is_not_due(real: Function) -> Function:
    def make(index_counters: Any, place: Any, counters: Any, *others: Any) -> None:
        real(index_counters, place, replace(counters, is_clean=False), *others)

    return make
