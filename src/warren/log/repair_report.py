"""What a repair found and did, or would do. Nothing is lost silently: whatever is, is named here."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.base.ids import Epoch
from warren.durability.closing import NO_DIGEST
from warren.durability.timeline import Timeline
from warren.log.file_record import FileRecord
from warren.log.repair_plan import FileRepair
from warren.log.verify_chain import Link


@dataclass(slots=True)
class RepairReport:
    directory: str
    is_dry_run: bool
    durable: Epoch  # the newest durable epoch before the repair
    highest_seen: Epoch  # the highest epoch number that appears anywhere, durable or not
    closed: Link = (Epoch(0), NO_DIGEST)  # the newest durable epoch after it, and the chain's digest there
    timeline: Timeline | None = None  # the new one, if the store goes back to an epoch
    repairs: list[FileRepair] = field(default_factory=list)  # files that change
    dropped: list[FileRecord] = field(default_factory=list)  # derived files that are set aside
    kept: list[str] = field(default_factory=list)  # what was put into quarantine

    @property
    def is_needed(self) -> bool:
        return bool(self.repairs or self.dropped or self.timeline)

    @property
    def entries_lost(self) -> int | None:
        """Lost by damage, at most; None if nobody can tell."""
        known = [repair.entries_lost for repair in self.repairs]
        return None if None in known else sum(count or 0 for count in known)

    @property
    def entries_cut(self) -> int:
        """Good entries of epochs behind the one the store goes back to."""
        return sum(repair.entries_cut for repair in self.repairs)

    @property
    def epochs_hit(self) -> list[tuple[Epoch, Epoch]]:
        """First and last epoch of each damage: these are no longer whole."""
        return sorted({(hit.first_epoch, hit.last_epoch) for repair in self.repairs for hit in repair.hits})
