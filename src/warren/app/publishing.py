"""Publications of an embedded program, and futures that are done when they are durable."""

from __future__ import annotations

from concurrent.futures import Future

from warren.app.queue_assembly import OpenQueues
from warren.base.errors import Misuse
from warren.base.ids import Epoch
from warren.base.runs import Origin, Publication
from warren.broker.expiry import wall_ms

_MS = 1000
_PRIORITY_MAX = 255


def publication_of(
    queues: OpenQueues,
    contents: list[bytes],
    ttl: float | None,
    priority: int,
    persistent: bool,
    origin: Origin,
    fan_out: int = 1,
) -> Publication:
    now_ms = wall_ms(queues.clock)
    if ttl is not None and ttl < 0:
        raise Misuse(f"a message cannot expire {-ttl} seconds ago", "give a ttl in seconds from now")
    if not 0 <= priority <= _PRIORITY_MAX:
        raise Misuse(f"{priority} is no priority", f"0 … {_PRIORITY_MAX}")
    expires_ms = 0 if ttl is None else now_ms + round(ttl * _MS)
    return Publication(contents, persistent, expires_ms, now_ms, priority, origin, fan_out)


def when_durable(queues: OpenQueues, epoch: Epoch) -> Future[None]:
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()  # it is under way: nobody can call it back

    def told(error: BaseException | None) -> None:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    queues.confirms.add(epoch, told)
    return future
