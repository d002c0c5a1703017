"""Compaction done elsewhere: the owner orders it, somebody else does it, the owner puts it in force.

    owner     order     rotate, choose the inputs, give numbers to the files that are to be made  ──▶  Order
    others    work      read the inputs, write sorted files below staging/<order>/, synced
    owner     accept    is the order ours and not lapsed, are its inputs still current, is every file what it should
                        be, one behind the other by key? ──▶ one manifest edit, as for any compaction

Whoever works holds no lock, and may die: an order lapses, and what lies in its directory is cleared, at the latest on
opening. Orders live in the owner's memory, so none outlives it. While one is out, compaction does not start by itself;
asked for, it runs, and then the order's inputs are no longer current: it is refused, and costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from warren.base.environment import Clock, Random
from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, FileNumber, Incarnation, TimelineId
from warren.base.threads import Condition
from warren.files.protocol import Files, join
from warren.log.compaction.compaction import Compaction, epoch_of, told_of
from warren.log.compaction.jobs import OutputFile, OutputSlot, clear_staging
from warren.log.compaction.sorted_file import SortedFile
from warren.log.file_record import STAGING, FileRecord, read_file_header
from warren.records.block import FileIdentity

PLACES_MAX = 256
_NAME = re.compile(r"[\w-][\w.-]*")
_FIGURES = ("entries", "end", "running", "index_at")


@dataclass(frozen=True, slots=True)
class CompactionJob:
    name: str
    directory: str
    inputs: tuple[FileRecord, ...]
    places: tuple[OutputSlot, ...]  # for the files to be made, by key range; not all need be used
    epoch: Epoch
    created_ns: int

    @property
    def home(self) -> str:
        return join(self.directory, STAGING, self.name)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inputs": [record.to_json() for record in self.inputs],
            "places": [[place.number, *place.identity] for place in self.places],
            "epoch": self.epoch,
            "created_ns": self.created_ns,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any], directory: str) -> CompactionJob:
        """An order as another process sees it, which may know the directory under another path."""
        places = tuple(
            OutputSlot(FileNumber(number), FileIdentity(TimelineId(timeline), Incarnation(incarnation)))
            for number, timeline, incarnation in raw["places"]
        )
        inputs = tuple(map(FileRecord.from_json, raw["inputs"]))
        return cls(raw["name"], directory, inputs, places, Epoch(raw["epoch"]), raw["created_ns"])


class Handover:
    def __init__(
        self, files: Files, directory: str, clock: Clock, rng: Random, upkeep: Condition, compaction: Compaction
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._rng = rng
        self._upkeep = upkeep
        self._compaction = compaction
        self._out: dict[
            str, tuple[CompactionJob, int]
        ] = {}  # by name, each with the time at which it lapses, monotonic

    def order(self, places: int = PLACES_MAX, seconds: float = 3600.0) -> CompactionJob | None:
        """An order for everything up to now; None if there is nothing to compact."""
        if not 1 <= places <= PLACES_MAX:
            raise Refused(f"{places} files cannot be made by one compaction", f"ask for 1 … {PLACES_MAX}")
        with self._upkeep:
            self._clear_lapsed()
            inputs = self._compaction.choose()
            if not inputs:
                return None
            now_ns = self._clock.wall_ns()
            name = f"order-{self._rng.id64():016x}"
            given = tuple(self._compaction.places(places))
            order = CompactionJob(name, self._directory, tuple(inputs), given, epoch_of(inputs), now_ns)
            self._files.make_directories(order.home)
            self._out[name] = (order, self._clock.monotonic_ns() + int(seconds * 1e9))
            return order

    def accept(self, name: str, made: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Put in force what was made for an order; what was done, for the result file."""
        with self._upkeep:
            self._clear_lapsed()
            if name not in self._out:
                raise Refused(f"there is no compaction order '{name}', or it has lapsed", "compact again")
            order, _ = self._out.pop(name)
            try:
                proposal = self._compaction.proposal(order.inputs, self._checked(order, made))
                self._compaction.commit(proposal)
            finally:
                clear_staging(self._files, order.home)
            return told_of(proposal)

    def cancel(self, name: str) -> None:
        """Give up an order; nothing of it stays."""
        with self._upkeep:
            if name in self._out:
                clear_staging(self._files, self._out.pop(name)[0].home)

    def is_out(self) -> bool:
        """Is somebody at work?"""
        now_ns = self._clock.monotonic_ns()
        return any(now_ns <= lapses_ns for _, lapses_ns in self._out.values())

    def _clear_lapsed(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for name, (order, lapses_ns) in list(self._out.items()):
            if now_ns > lapses_ns:
                del self._out[name]
                clear_staging(self._files, order.home)

    def _checked(self, order: CompactionJob, told: Sequence[dict[str, Any]]) -> list[OutputFile]:
        """The files as they were told of, if each is what it should be and they lie one behind the other."""
        places = {place.number: place for place in order.places}
        numbers = [each.get("number") for each in told]
        if not numbers or len(set(numbers)) < len(numbers) or not set(numbers) <= set(places):
            raise Refused(
                f"files with the numbers {numbers} were made", "the order says which, each once: compact again"
            )
        made, files = [], []
        for each in told:
            place = places[each["number"]]
            figures = {name: each.get(name) for name in _FIGURES}
            name = each.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise Refused(f"'{name}' is no name of a staged file", "it stands in the order's directory itself")
            if not all(isinstance(figure, int) and figure >= 0 for figure in figures.values()):
                raise Refused(f"the figures of '{name}' are {figures}", f"whole numbers for {', '.join(_FIGURES)}")
            made.append(OutputFile(place, join(order.home, name), figures))
            files.append(self._opened(made[-1]))
        _check_ascending(files)
        return made

    def _opened(self, made: OutputFile) -> tuple[str, SortedFile]:
        if not self._files.exists(made.staged):
            raise Refused(f"{made.staged} was never made", "compact again")
        file = self._files.open(made.staged)
        try:
            view = file.view()
        finally:
            file.close()
        header, identity = read_file_header(view, made.staged)
        if (header.number, identity) != made.place or len(view) < made.figures["end"]:
            raise Damage("this is not the file that was ordered", made.staged, 0)
        opened = SortedFile(view[: made.figures["end"]], identity, made.figures["index_at"], made.staged)
        if opened.entries != made.figures["entries"]:
            raise Damage(f"it holds {opened.entries} entries, not {made.figures['entries']}", made.staged)
        return made.staged, opened


def _check_ascending(files: Sequence[tuple[str, SortedFile]]) -> None:
    """Each file's keys lie behind those of the file before it."""
    last: tuple[int, bytes] = (-1, b"")
    for path, file in files:
        for row in islice(file.cursor(), 1):
            if (row.storage, row.key) <= last:
                raise Damage("its keys do not begin behind those of the file before it", path)
        for row in islice(file.cursor(reverse=True), 1):
            last = (row.storage, row.key)
