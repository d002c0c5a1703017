"""Damage under a read: named with file and offset, or skipped and listed; never shown, never silently missing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.log.upkeep_stage import DIRECTORY, Stage, put
from tests.pipeline.looking import look, plan_of, spoil, state
from warren.base.errors import Damage, WarrenError
from warren.log.file_record import FileRecord, FileState

EPOCHS = 6
STEP = 17  # bytes from one flipped bit to the next: every field of a header is hit in some block


def stopped_store(is_sealed: bool = True) -> tuple[Stage, FileRecord]:
    """Six epochs in one file, and the file."""
    stage = Stage(retention_seconds=1e6, retention_bytes=1 << 40)
    store = stage.open()
    for number in range(EPOCHS):
        put(store, {b"key-%d" % number: b"value %d" % number, b"same": b"%d" % number})
    if is_sealed:
        store.rotate()
    store.witness()
    [record, *_] = [r for r in store.manifest.state.files.values() if is_sealed == (r.state is FileState.SEALED)]
    end = store.channels[0].participant.end
    store.abandon()
    return stage, record if is_sealed else record.changed(end=end)


def block_of_epoch(stage: Stage, record: FileRecord, epoch: int) -> int:
    """Where the entries of an epoch begin: the low half of the block's own offset is in its first entry's LSN."""
    [row, *_] = [row for row in look(stage, "lsn", "epoch") if row["epoch"] == epoch]
    return int(row["lsn"]) - (record.number << 32)


@pytest.mark.parametrize("view", ["entries", "kv"])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_damaged_block_is_named_with_file_and_offset(view: str, is_sealed: bool) -> None:
    stage, record = stopped_store(is_sealed)
    offset = block_of_epoch(stage, record, 3)
    spoil(stage, f"{DIRECTORY}/{record.name}", offset + 100)
    with pytest.raises(Damage) as raised:
        look(stage, view=view)
    assert (raised.value.path, raised.value.offset) == (f"{DIRECTORY}/{record.name}", offset)
    assert "epoch 3" in raised.value.what and "verify" in raised.value.hint


def test_what_skip_leaves_out_is_listed_by_view_damage() -> None:
    stage, record = stopped_store()
    offset = block_of_epoch(stage, record, 3)
    spoil(stage, f"{DIRECTORY}/{record.name}", offset + 100)
    rows = look(stage, onDamage="skip")
    assert [row["epoch"] for row in rows] == [1, 1, 2, 2, 4, 4, 5, 5, 6, 6]
    assert (1, b"key-2") not in state(stage, onDamage="skip") and (1, b"key-5") in state(stage, onDamage="skip")
    [row] = look(stage, view="damage")
    assert (row["path"], row["offset"]) == (f"{DIRECTORY}/{record.name}", offset)
    assert (row["first_epoch"], row["last_epoch"], row["entries_max"]) == (3, 3, 2)
    assert row["length"] > 64 and "checksum" in row["what"]


def test_damage_elsewhere_does_not_disturb_other_epochs() -> None:
    stage, record = stopped_store()
    spoil(stage, f"{DIRECTORY}/{record.name}", block_of_epoch(stage, record, 5) + 100)
    assert [row["epoch"] for row in look(stage, fromEpoch=1, toEpoch=3)] == [1, 1, 2, 2, 3, 3]
    with pytest.raises(Damage):
        look(stage, fromEpoch=1, toEpoch=5)


def test_a_missing_file_is_damage_too() -> None:
    stage, record = stopped_store()
    stage.disk.remove(f"{DIRECTORY}/{record.name}")
    with pytest.raises(WarrenError, match=record.name):
        look(stage)
    with pytest.raises(WarrenError, match=record.name):
        look(stage, view="kv")
    assert state(stage, onDamage="skip") == {}


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("options", [{"partitionBytes": 1}, {"fromEpoch": 3, "toEpoch": 4, "partitionBytes": 400}])
def test_no_flipped_bit_passes_unseen(is_sealed: bool, options: dict[str, Any]) -> None:
    """Whatever bit flips: what is read without an error is what was written, all of it; with `skip`, only that."""
    stage, record = stopped_store(is_sealed)
    path = f"{DIRECTORY}/{record.name}"
    whole = stage.disk.contents(path)
    good = look(stage, **options)
    assert len(good) == (12 if "fromEpoch" not in options else 4)
    noticed = 0
    for offset in range(0, record.end, STEP):
        spoil(stage, path, offset)
        try:
            assert look(stage, **options) == good, f"byte {offset}"
        except Damage as damage:
            noticed += damage.path == path and ("fromEpoch" in options or damage.offset <= offset)
        shown = look(stage, onDamage="skip", **options)
        assert all(row in good for row in shown), f"byte {offset}"
        stage.disk.set_contents(path, whole)
    assert noticed > (record.end // STEP if "fromEpoch" not in options else record.end // (4 * STEP)) * 0.8


def test_parts_of_a_whole_file_are_cut_at_block_borders() -> None:
    stage, record = stopped_store()
    tasks = plan_of(stage, partitionBytes=1).tasks
    parts = [task.parts[0] for task in tasks]
    assert len(parts) == 2 * EPOCHS, "an entries and a closing block for each epoch"
    assert all(before.stop == behind.start for before, behind in pairwise(parts))
    assert parts[-1].stop == record.end and sum(part.entries for part in parts) == 2 * EPOCHS
