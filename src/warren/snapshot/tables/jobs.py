"""Reflection done elsewhere: the owner orders tables of what is not reflected yet, others make them, he ingests them.

    owner     order     the epochs behind the store's mark, as many as are wanted     ──▶  a task (table_tasks)
    others    work      tables of its key ranges, below tables/
    owner     accept    is the order ours, does it fit? ──▶ one ingest, with the mark; the log behind it may go

Whoever works holds no lock, and may die: an order that nobody renews lapses, and what it made is removed. While one is
out the log keeps what it is about, and there is no second one. The owner may reflect by itself meanwhile (somebody
reads as of now): what came in that way comes out the same, and an order that has come too late is told so and costs
nothing.

Orders live in the owner's memory: none outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from warren.base.environment import Clock, Random
from warren.base.errors import Locked, Refused
from warren.base.ids import Epoch
from warren.files.protocol import base_name, join, parent
from warren.snapshot.store import Applied
from warren.snapshot.tables.bulk import BulkLoader, SafeAt
from warren.snapshot.tables.tasks import TableResult, TableTask

Message = dict[str, Any]
STEP_BYTES = 1 << 30
SECONDS = 3600.0
_NUMBER_MAX = 1 << 53


class SyncJobs:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        bulk: BulkLoader,
        durable: Callable[[], Epoch],
        safe_at: SafeAt,
        turn: Callable[[], AbstractContextManager[object]],
        has_flushed: Callable[[Applied], None],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._bulk = bulk
        self._durable = durable
        self._safe_at = safe_at
        self._turn = turn  # whoever has it is the only one who changes the store
        self._has_flushed = has_flushed
        self._out: dict[str, tuple[TableTask, int]] = {}  # by name, each with the time at which it lapses

    def order(self, wanted: Message) -> Message:
        """A task for what is not reflected; none, if there is nothing to do."""
        seconds, step_bytes = _number(wanted, "seconds", SECONDS), _number(wanted, "step_bytes", STEP_BYTES)
        with self._turn():
            self._clear_lapsed()
            if self.is_out():
                raise Locked("somebody is at work on an order already", "wait for it: if he is gone, it lapses")
            self._bulk.clear_all()
            durable = self._durable()
            task = self._bulk.begin(durable, int(step_bytes), 1)
            if task is None:
                return {"durable": durable}
            name = f"sync-{self._rng.id64():016x}"
            self._out[name] = (task, self._lapses_ns(seconds))
            return {"durable": durable, "order": {"name": name, "task": task.to_json()}}

    def renew(self, told: Message) -> Message:
        """Whoever works is alive: the order lapses so many seconds from now."""
        name, seconds = str(told.get("name", "")), _number(told, "seconds", SECONDS)
        with self._turn():
            if name not in self._out:
                raise _no_such(name)
            self._out[name] = (self._out[name][0], self._lapses_ns(seconds))
        return {}

    def accept(self, told: Message) -> Message:
        """Ingest what was made for an order."""
        name = str(told.get("name", ""))
        with self._turn():
            task = self._taken(name)
            try:
                mark = self._bulk.finish(task, _checked(task, told), self._safe_at)
            finally:
                self._bulk.clear(task)
            if mark is not None:
                self._has_flushed(mark)
        return {"epoch": task.up_to, "is_ingested": mark is not None}

    def cancel(self, told: Message) -> Message:
        """Give up an order; nothing of it stays."""
        with self._turn():
            self._bulk.clear(self._taken(str(told.get("name", ""))))
        return {}

    def handlers(self) -> dict[str, Callable[[Message], Message]]:
        """For a control socket."""
        return {
            "sync-order": self.order,
            "sync-renew": self.renew,
            "sync-accept": self.accept,
            "sync-cancel": self.cancel,
        }

    def is_out(self) -> bool:
        """Is somebody at work?"""
        now_ns = self._clock.monotonic_ns()
        return any(now_ns <= lapses_ns for _, lapses_ns in self._out.values())

    def _taken(self, name: str) -> TableTask:
        self._clear_lapsed()
        if name not in self._out:
            raise _no_such(name)
        return self._out.pop(name)[0]

    def _lapses_ns(self, seconds: float) -> int:
        return self._clock.monotonic_ns() + int(seconds * 1e9)

    def _clear_lapsed(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for name, (task, lapses_ns) in list(self._out.items()):
            if now_ns > lapses_ns:
                del self._out[name]
                self._bulk.clear(task)


def _no_such(name: str) -> Refused:
    return Refused(f"there is no order '{name}', or it has lapsed", "ask for another one")


def _number(told: Message, name: str, usual: float) -> float:
    value = told.get(name, usual)
    if not isinstance(value, int | float) or not 0 < value < _NUMBER_MAX:
        raise Refused(f"{name} of an order are a number above 0, not {value!r}")
    return float(value)


def _checked(task: TableTask, told: Message) -> Sequence[TableResult]:
    """The tables that were made, under the owner's own path: the maker may know the directory by another one."""
    try:
        made = [TableResult.from_json(each) for each in told["made"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"what was made cannot be read: {error!r}", "answer what make_table has answered") from None
    for path in (each.figures.path for each in made):
        if not base_name(path).startswith(base_name(task.path)):
            raise Refused(f"'{path}' is no table of this order", f"its tables are called {task.path}…")
    home = parent(task.path)
    return [replace(e, figures=replace(e.figures, path=join(home, base_name(e.figures.path)))) for e in made]
