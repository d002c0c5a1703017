"""Compaction by other processes (Spark): the owner leases a job, they write sorted files, the owner commits them.

    owner     order     rotate, choose the inputs, number the output files              ──▶  CompactionJob
    others    work      read the inputs, write sorted files below staging/<job>/, synced
    owner     accept    is the job leased, are its inputs still current, is each file valid, do their keys ascend from
                        file to file? ──▶ one manifest edit, as for any compaction

While a job is leased, compaction does not start on its own. A compaction on request does run; the job's inputs are then
no longer current, and its result is refused. Leases expire, and their directories are cleared (workers/jobs).
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
from warren.log.compaction.compaction import Compaction, epoch_of, proposal_to_json
from warren.log.compaction.jobs import OutputFile, OutputSlot, clear_staging
from warren.log.compaction.sorted_file import SortedFile
from warren.log.file_record import STAGING, FileRecord, read_file_header
from warren.records.block import FileIdentity
from warren.workers.jobs import LEASE_SECONDS, JobLeases

PLACES_MAX = 256
_NAME = re.compile(r"[\w-][\w.-]*")
_FIGURES = ("entries", "end", "running", "index_at")


@dataclass(frozen=True, slots=True)
class CompactionJob:
    name: str
    directory: str
    inputs: tuple[FileRecord, ...]
    places: tuple[OutputSlot, ...]  # for the output files, by key range; not all need be used
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
        """The job in another process, where the directory may have another path."""
        places = tuple(
            OutputSlot(FileNumber(number), FileIdentity(TimelineId(timeline), Incarnation(incarnation)))
            for number, timeline, incarnation in raw["places"]
        )
        inputs = tuple(map(FileRecord.from_json, raw["inputs"]))
        return cls(raw["name"], directory, inputs, places, Epoch(raw["epoch"]), raw["created_ns"])


class CompactionJobs:
    """Compactions leased to other processes. All methods but `is_active` take the lock of maintenance."""

    def __init__(
        self, files: Files, directory: str, clock: Clock, rng: Random, upkeep: Condition, compaction: Compaction
    ) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._upkeep = upkeep
        self._compaction = compaction
        self._leases = JobLeases[CompactionJob](clock, rng, "order", lambda job: clear_staging(files, job.home))

    def order(self, places: int = PLACES_MAX, seconds: float = LEASE_SECONDS) -> CompactionJob | None:
        """Lease a job for everything up to now; None if there is nothing to compact."""
        if not 1 <= places <= PLACES_MAX:
            raise Refused(f"{places} files cannot be made by one compaction", f"ask for 1 … {PLACES_MAX}")
        with self._upkeep:
            self._leases.discard_expired()
            inputs = self._compaction.choose()
            if not inputs:
                return None
            now_ns = self._clock.wall_ns()
            name = self._leases.new_name()
            slots = tuple(self._compaction.places(places))
            job = CompactionJob(name, self._directory, tuple(inputs), slots, epoch_of(inputs), now_ns)
            self._files.make_directories(job.home)
            self._leases.lease(name, job, seconds)
            return job

    def accept(self, name: str, outputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Check the files written for a job and commit them; the summary for the result file."""
        with self._upkeep, self._leases.accept(name) as job:
            proposal = self._compaction.proposal(job.inputs, self._checked(job, outputs))
            self._compaction.commit(proposal)
            return proposal_to_json(proposal)

    def cancel(self, name: str) -> None:
        """Discard a job and its files. An unknown name is ignored."""
        with self._upkeep:
            self._leases.discard_expired()
            if name in self._leases:
                self._leases.cancel(name)

    def is_active(self) -> bool:
        return self._leases.is_active()

    def _checked(self, job: CompactionJob, raw: Sequence[dict[str, Any]]) -> list[OutputFile]:
        """The output files, if each is valid and their keys ascend from file to file."""
        slots = {slot.number: slot for slot in job.places}
        numbers = [each.get("number") for each in raw]
        if not numbers or len(set(numbers)) < len(numbers) or not set(numbers) <= set(slots):
            raise Refused(
                f"files with the numbers {numbers} were made", "the order says which, each once: compact again"
            )
        outputs, files = [], []
        for each in raw:
            slot = slots[each["number"]]
            figures = {name: each.get(name) for name in _FIGURES}
            name = each.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise Refused(f"'{name}' is no name of a staged file", "it stands in the order's directory itself")
            if not all(isinstance(figure, int) and figure >= 0 for figure in figures.values()):
                raise Refused(f"the figures of '{name}' are {figures}", f"whole numbers for {', '.join(_FIGURES)}")
            outputs.append(OutputFile(slot, join(job.home, name), figures))
            files.append(self._opened(outputs[-1]))
        _check_ascending(files)
        return outputs

    def _opened(self, output: OutputFile) -> tuple[str, SortedFile]:
        if not self._files.exists(output.staged):
            raise Refused(f"{output.staged} was never made", "compact again")
        file = self._files.open(output.staged)
        try:
            view = file.view()
        finally:
            file.close()
        header, identity = read_file_header(view, output.staged)
        if (header.number, identity) != output.place or len(view) < output.figures["end"]:
            raise Damage("this is not the file that was ordered", output.staged, 0)
        opened = SortedFile(view[: output.figures["end"]], identity, output.figures["index_at"], output.staged)
        if opened.entries != output.figures["entries"]:
            raise Damage(f"it holds {opened.entries} entries, not {output.figures['entries']}", output.staged)
        return output.staged, opened


def _check_ascending(files: Sequence[tuple[str, SortedFile]]) -> None:
    """The keys of each file follow those of the file before it."""
    last: tuple[int, bytes] = (-1, b"")
    for path, file in files:
        for row in islice(file.cursor(), 1):
            if (row.storage, row.key) <= last:
                raise Damage("its keys do not begin behind those of the file before it", path)
        for row in islice(file.cursor(reverse=True), 1):
            last = (row.storage, row.key)
