"""The interface of reflection for a database: a thread of this process (reflection) or another one (puller/client).

And the commands of its control socket (`warren reflection`):

    status     mode, epochs of log and store, whether it is paused, the failure
    pause      leave everything in the log until `resume`
    persist    reflect everything durable, flush; the mark that is on disk then
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from warren.base.errors import Refused, WarrenError
from warren.base.ids import Epoch, TimelineId
from warren.files.environment import Environment
from warren.snapshot.reflection import ReflectionSettings
from warren.snapshot.store import Applied, StoreReader, StoreView, Version
from warren.workers.control_socket import Handler
from warren.workers.process import Message


class ViewedStore(StoreReader, Protocol):
    """A store for readers."""

    @property
    def size_bytes(self) -> int: ...

    def view(self) -> StoreView: ...

    def close(self) -> None: ...


class ReflectionControl(Protocol):
    @property
    def failure(self) -> WarrenError | None:
        """Why it is stopped; None if it runs."""
        ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def safe(self) -> Version:
        """The safe snapshot version: nothing above it is in the store."""
        ...

    def catch_up(self) -> Applied:
        """Reflect everything that is durable now; the mark of the store afterwards."""
        ...

    def flush(self) -> Applied:
        """Flush what was applied; the log up to the mark may then be purged."""
        ...

    def advance(self, safe: Version) -> None:
        """Move the safe snapshot version; it never moves back."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None:
        """Reflect and flush the rest, then end."""
        ...

    def end(self) -> None:
        """End without reflecting or flushing."""
        ...


class ReflectionClient(ReflectionControl, Protocol):
    """Reflection in another process; the store is read as a secondary."""

    @property
    def store(self) -> ViewedStore: ...


@dataclass(frozen=True, slots=True)
class PullerConfig:
    """What a database passes to a puller client. The store is flushed, closed and unlocked."""

    directory: str
    timeline: TimelineId
    settings: ReflectionSettings
    environment: Environment
    witness: Callable[[], None]  # makes the durable epoch visible to other processes
    release: Callable[[Applied], None]  # the log up to a mark may be purged


def control_handlers(reflection: ReflectionControl | None, facts: Callable[[], Message]) -> dict[str, Handler]:
    """The handlers of the control socket. `facts` adds to the status; `reflection` is None if it is off."""

    def running() -> ReflectionControl:
        if reflection is None:
            raise Refused("reflection is off", "open the database with another mode of reflection")
        return reflection

    def status(request: Message) -> Message:
        failure = reflection.failure if reflection is not None else None
        wrong = None if failure is None else {"error": failure.what, "hint": failure.hint}
        return {**facts(), "is_paused": reflection is not None and reflection.is_paused, "failure": wrong}

    def pause(request: Message) -> Message:
        running().pause()
        return {"is_paused": True}

    def resume(request: Message) -> Message:
        running().resume()
        return {"is_paused": False}

    def persist(request: Message) -> Message:
        running().catch_up()
        return {"flushed": mark_to_json(running().flush())}

    return {"status": status, "pause": pause, "resume": resume, "persist": persist}


def mark_to_json(mark: Applied) -> dict[str, Any]:
    return {"timeline": f"{mark.timeline:016x}", "epoch": mark.epoch, "version": list(mark.version)}


def mark_from_json(raw: dict[str, Any]) -> Applied:
    major, minor = raw["version"]
    return Applied(TimelineId(int(raw["timeline"], 16)), Epoch(raw["epoch"]), (major, minor))
