"""Pins: a reader's lease on files that would otherwise go.

    pins/<id>.json     { reader, timeline, from_epoch, files, expires_ns, bytes_max }

A pin is a file, so that any process can take one, whether the store's owner runs or not. It protects the files it names
and everything from `from_epoch` on (log/lives), until it expires; a reader that lives renews it. A reader that comes
too late, or was too slow, is told "gone, horizon is H": never a gap.

Expiry is written as wall time, since several processes read it. Each process translates it to its monotonic clock when
it first reads it: a step of the wall clock lapses no pin that was known before.

Reader and purge meet without a lock, each writing before it looks: the reader writes its pin, then reads the
manifest; the purge writes `doomed` into the manifest, then reads the pins. Whichever order the four take, either the
purge sees the pin and leaves the bytes where they are, or the reader sees that they are doomed and does not begin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from warren.base.chance import Random
from warren.base.clock import Clock
from warren.base.errors import Gone, NotFound, Refused
from warren.base.ids import Epoch, FileNumber, TimelineId
from warren.base.steady_instants import SteadyInstants
from warren.files import atomic
from warren.files.protocol import Files, base_name, join
from warren.log.file_record import FileState
from warren.log.layout import PINS
from warren.log.manifest import read_manifest
from warren.log.manifest_state import ManifestState

PIN_SUFFIX = ".json"
_NAME = re.compile(r"[0-9a-f]{16}\.json")


@dataclass(frozen=True, slots=True)
class Pin:
    id: str
    reader: str
    timeline: TimelineId
    from_epoch: Epoch | None  # None: only the files it names
    files: tuple[FileNumber, ...]
    expires_ns: int
    bytes_max: int  # 0: no cap


class Pins:
    def __init__(self, files: Files, directory: str, clock: Clock, chance: Random) -> None:
        self._files = files
        self._directory = directory
        self._home = join(directory, PINS)
        self._clock = clock
        self._chance = chance
        self._expiries = SteadyInstants(clock)

    def take(
        self,
        reader: str,
        seconds: float,
        from_epoch: Epoch | None = None,
        numbers: Iterable[FileNumber] = (),
        bytes_max: int = 0,
        timeline: TimelineId | None = None,
    ) -> tuple[Pin, ManifestState]:
        """Pin, then look: the pin, and a manifest whose files are safe from now on."""
        state = read_manifest(self._files, self._directory)
        if timeline is not None and from_epoch is not None:
            state.timeline.admit(timeline, from_epoch)
        expires_ns = self._clock.wall_ns() + int(seconds * 1e9)
        identity = f"{self._chance.id64():016x}"
        pin = Pin(identity, reader, state.timeline.id, from_epoch, tuple(numbers), expires_ns, bytes_max)
        self._left_ns(pin)
        self._write(pin)
        state = read_manifest(self._files, self._directory)
        try:
            check_not_gone(state, from_epoch, pin.files)
        except Gone:
            self.release(pin)
            raise
        return pin, state

    def renew(self, pin: Pin, seconds: float) -> Pin:
        """Hold it longer. A pin that was revoked or has lapsed cannot be renewed: its files may be gone."""
        if self._has_lapsed(pin) or not self._files.exists(self._path(pin.id)):
            raise self._lapsed(pin)
        lapses_ns = self._clock.monotonic_ns() + self._left_ns(pin)
        renewed = replace(pin, expires_ns=self._clock.wall_ns() + int(seconds * 1e9))
        self._left_ns(renewed)
        self._write(renewed)
        # Written, then looked: a purge that took the old pin for lapsed or revoked is seen by what it did.
        if self._clock.monotonic_ns() > lapses_ns:
            self.release(renewed)
            raise self._lapsed(pin)
        try:
            check_not_gone(read_manifest(self._files, self._directory), pin.from_epoch, pin.files)
        except Gone:
            self.release(renewed)
            raise
        return renewed

    def seconds_left(self, pin: Pin) -> float:
        """Until it lapses; negative if it has."""
        return self._left_ns(pin) / 1e9

    def _left_ns(self, pin: Pin) -> int:
        return self._expiries.monotonic_ns(pin.id, pin.expires_ns) - self._clock.monotonic_ns()

    def _has_lapsed(self, pin: Pin) -> bool:
        return self._left_ns(pin) < 0

    def _lapsed(self, pin: Pin) -> Gone:
        horizon = read_manifest(self._files, self._directory).horizon
        return Gone(
            f"the pin of {pin.reader} has lapsed: horizon is {horizon}", f"begin again at epoch {horizon + 1} or later"
        )

    def release(self, pin: Pin) -> None:
        self.revoke(pin.id)

    def revoke(self, identity: str) -> None:
        self._expiries.forget(identity)
        for path in (self._path(identity), self.parts_path(identity)):
            with suppress(NotFound):  # it has no parts, or another process was quicker
                self._files.remove(path)

    def find(self, identity: str) -> Pin | None:
        """The pin of this id, lapsed or not; None if it was released."""
        return self._read(base_name(self._path(identity)))

    def parts_path(self, identity: str) -> str:
        """The file in which the tasks of one reader note that they have ended (pipeline/plan_pin)."""
        return join(self._home, f"{identity}.parts")

    def every(self) -> list[Pin]:
        """Every pin, lapsed ones too. A file that is not a pin of ours is passed over."""
        names = self._files.list(self._home) if self._files.exists(self._home) else []
        found = [pin for name in names if _NAME.fullmatch(name) and (pin := self._read(name)) is not None]
        self._expiries.keep({pin.id for pin in found})
        return found

    def live(self) -> list[Pin]:
        return [pin for pin in self.every() if not self._has_lapsed(pin)]

    def drop_lapsed(self) -> list[Pin]:
        lapsed = [pin for pin in self.every() if self._has_lapsed(pin)]
        for pin in lapsed:
            self.revoke(pin.id)
        return lapsed

    def _path(self, identity: str) -> str:
        return join(self._home, f"{identity}{PIN_SUFFIX}")

    def _write(self, pin: Pin) -> None:
        self._files.make_directories(self._home)
        atomic.replace(self._files, self._path(pin.id), [json.dumps(asdict(pin)).encode()])

    def _read(self, name: str) -> Pin | None:
        path = join(self._home, name)
        try:
            file = self._files.open(path)
        except NotFound:
            return None  # released a moment ago
        try:
            raw = json.loads(file.read_at(0, file.size()))
            return Pin(**{**raw, "files": tuple(raw["files"])})
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(f"{path} is not a pin: {error}", "remove it if no reader owns it") from error
        finally:
            file.close()


def check_not_gone(state: ManifestState, from_epoch: Epoch | None, numbers: Sequence[FileNumber]) -> None:
    hint = f"begin at epoch {state.horizon + 1} or later"
    if from_epoch is not None and from_epoch <= state.horizon:
        raise Gone(f"epoch {from_epoch} is gone, horizon is {state.horizon}", hint)
    for number in numbers:
        record = state.files.get(number)
        if record is None or record.state is FileState.DOOMED:
            raise Gone(f"log file {number} is gone, horizon is {state.horizon}", hint)
