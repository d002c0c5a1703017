"""What a queue is when it starts: decided by itself, from what it finds, each time (S1 §Startup; QP-03, QP-04, C-11).

    catalog: is it there, how was it asked for?  ─┐
    index:   is anything of it on disk?           ├─▶ role, afresh or recovered ──▶ backing queue ──▶ `queue.Queue`
    role:    regular, or by a hook master/mirror ─┘

A supervisor starts every queue here, the first time and after a crash, and remembers nothing of what it was before. So
a queue that was made afresh recovers when it is started again, and one that was a master comes back as a mirror if that
is what the hook says by then. Only `regular` is required (C-11): other roles are proxies around the same backing queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from warren.base.errors import Refused
from warren.base.ids import Epoch, QueueId
from warren.base.runs import QueuePlace
from warren.broker.arguments import QueueArguments
from warren.broker.backing_kinds import BackingKinds, places_of
from warren.broker.queue import Queue, QueueContext
from warren.catalog.queues import QueueRow as Row
from warren.queue_index.changes import IndexBatch
from warren.queue_index.format import Counters
from warren.queues.backing import BackingQueue

LookUp = Callable[[QueueId], Row]  # refuses what is not there any more
Recover = Callable[[QueuePlace, Epoch], Counters]


class QueueRole(StrEnum):
    REGULAR = "regular"
    MASTER = "master"
    MIRROR = "mirror"


class StartReason(NamedTuple):
    """What was decided."""

    role: QueueRole
    is_fresh: bool


RoleOf = Callable[[Row], QueueRole]
Proxy = Callable[[BackingQueue], BackingQueue]


class QueueStarter:
    """Starts queues. Keeps nothing about them."""

    def __init__(
        self,
        look_up: LookUp,
        recover: Recover,
        wait: Callable[[Epoch], None],
        kinds: BackingKinds,
        around: QueueContext,
        role_of: RoleOf = lambda row: QueueRole.REGULAR,
        proxies: Mapping[QueueRole, Proxy] | None = None,
    ) -> None:
        self._look_up = look_up
        self._recover = recover
        self._wait = wait
        self._kinds = kinds
        self._around = around
        self._role_of = role_of
        self._proxies = dict(proxies or {})

    def start(
        self,
        id_: QueueId,
        life: int,
        newest: Epoch,
        row: Row | None = None,
        is_new: bool = False,
        starting: IndexBatch | None = None,
    ) -> tuple[StartReason, Queue]:
        """A queue, ready to serve, with everything that was written up to an epoch. `row`: as the catalog has it now;
        looked up if it is not given. `is_new`: it was declared just now, and the index is not read. `starting`: what
        is written before the queue may serve goes there, and the caller ends it and waits for it."""
        self._wait(newest)  # what was written and is on its way is there then, and what is read is durable
        row = row or self._look_up(id_)
        arguments = QueueArguments.from_table(row.arguments)
        places = places_of(row.id, arguments) if row.durable else []
        found = {place: Counters() if is_new else self._recover(place, newest) for place in places}
        beginning = StartReason(self._role_of(row), all(each == Counters() for each in found.values()))
        backing = self._kinds.make(id_, row.durable, arguments, found, newest, starting)
        if beginning.role is not QueueRole.REGULAR:
            backing = self._proxied(beginning.role, row, backing)
        return beginning, Queue(id_, row.name, arguments, backing, life, self._around)

    def _proxied(self, role: QueueRole, row: Row, backing: BackingQueue) -> BackingQueue:
        if role not in self._proxies:
            raise Refused(f"queue {row.name!r} cannot be a {role} here: nothing makes one")
        return self._proxies[role](backing)
