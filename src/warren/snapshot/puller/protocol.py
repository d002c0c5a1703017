"""What a database asks of its reflection, wherever that runs: a thread here (reflection), or a process (outside).

And the orders that an operator gives it through a control socket (`warren reflection`):

    status     mode, how far log and store are, whether it is paused, what is wrong
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
    """A store as its readers know it."""

    @property
    def size_bytes(self) -> int: ...

    def view(self) -> StoreView: ...

    def close(self) -> None: ...


class ReflectionOwner(Protocol):
    @property
    def failure(self) -> WarrenError | None:
        """Why it stands still; None: all is well."""
        ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def safe(self) -> Version:
        """The safe snapshot version: nothing above it is in the store."""
        ...

    def catch_up(self) -> Applied:
        """Reflect everything that is durable now; where the store is then."""
        ...

    def flush(self) -> Applied:
        """Bring what was applied to the disk, and let go of the log behind it."""
        ...

    def advance(self, safe: Version) -> None:
        """Move the safe snapshot version; it never moves back."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None:
        """Reflect and flush the rest, and end."""
        ...

    def end(self) -> None:
        """End, and leave everything as it is."""
        ...


class ReflectionClient(ReflectionOwner, Protocol):
    """In another process, beside which the store is read."""

    @property
    def store(self) -> ViewedStore: ...


@dataclass(frozen=True, slots=True)
class PullerConfig:
    """What a database gives to whoever reflects for it from outside. The store is flushed, closed and unlocked."""

    directory: str
    timeline: TimelineId
    settings: ReflectionSettings
    environment: Environment
    witness: Callable[[], None]  # let other processes see what is durable
    release: Callable[[Applied], None]  # of the log, up to a mark


def orders_of(reflection: ReflectionOwner | None, told: Callable[[], Message]) -> dict[str, Handler]:
    """The handlers of a control socket. `told` adds what the reflection itself does not know; None: it is off."""

    def its() -> ReflectionOwner:
        if reflection is None:
            raise Refused("reflection is off", "open the database with another mode of reflection")
        return reflection

    def status(request: Message) -> Message:
        failure = reflection.failure if reflection is not None else None
        wrong = None if failure is None else {"error": failure.what, "hint": failure.hint}
        return {**told(), "is_paused": reflection is not None and reflection.is_paused, "failure": wrong}

    def pause(request: Message) -> Message:
        its().pause()
        return {"is_paused": True}

    def resume(request: Message) -> Message:
        its().resume()
        return {"is_paused": False}

    def persist(request: Message) -> Message:
        its().catch_up()
        return {"flushed": mark_to_json(its().flush())}

    return {"status": status, "pause": pause, "resume": resume, "persist": persist}


def mark_to_json(mark: Applied) -> dict[str, Any]:
    return {"timeline": f"{mark.timeline:016x}", "epoch": mark.epoch, "version": list(mark.version)}


def mark_from_json(told: dict[str, Any]) -> Applied:
    major, minor = told["version"]
    return Applied(TimelineId(int(told["timeline"], 16)), Epoch(told["epoch"]), (major, minor))
