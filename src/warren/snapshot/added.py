"""What may be added to a version buffer: entries of bounded size that know their epochs. The same for every buffer."""

from __future__ import annotations

from warren.base.errors import Misuse
from warren.log.admission import check_largest
from warren.records.columns import EntryColumns


def check_added(batch: EntryColumns) -> None:
    """Refuse what could not be kept: nothing of the batch is then in the buffer."""
    if batch.epochs is None:
        raise Misuse("a batch for the version buffer does not say the epochs of its entries", "fill in the block's")
    check_largest(batch.keys, batch.values)
