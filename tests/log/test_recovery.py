"""Judging what a stop left behind: the three witnesses of the essay, rule by rule, over forged files."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.errors import Damage, Refused
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.durability.closing_block import NO_DIGEST, Closing, ClosingPart
from warren.durability.epoch_file import DurableRecord
from warren.durability.log_file import FileEnd, LogFile, run_on
from warren.log.file_record import FILE_HEADER_BYTES, FileHeader, FileKind, FileRecord, FileState
from warren.log.recovery import ExaminedFile, RecoveredEpoch, examine, judge
from warren.log.session import EntryRows
from warren.records.block import FileIdentity, draft
from warren.records.entries import Versions, draft_entries
from warren.records.format import BlockKind

TIMELINE = TimelineId(0xAA)
ALLOCATED_BYTES = 8192


@dataclass
class Forge:
    """Log files made block by block, without a store: what each epoch wrote, and where each file stood behind it."""

    count: int = 1
    participants: list[LogFile] = field(default_factory=list)
    ends: dict[int, tuple[FileEnd, ...]] = field(default_factory=dict)  # by epoch
    digests: dict[int, bytes] = field(default_factory=lambda: {0: NO_DIGEST})
    previous: int = 0

    def __post_init__(self) -> None:
        for number in range(1, self.count + 1):
            identity = FileIdentity(TIMELINE, Incarnation(number * 0x11))
            raw, checksum = FileHeader(
                FileNumber(number), ChannelId(number - 1), FileKind.LOG, ALLOCATED_BYTES, 5
            ).placed(identity)
            created = LogFile(FileNumber(number), identity, len(raw), run_on(0, checksum), ALLOCATED_BYTES)
            created.pending = [raw]
            self.participants.append(created)
        self.ends[0] = tuple(participant.as_end() for participant in self.participants)

    def epoch(self, epoch: int, *indexes: int, blocks: int = 1, is_closed: bool = True, monotone_ns: int = 0) -> None:
        """Entries in these files, closed by all of them."""
        for index in indexes:
            for number in range(blocks):
                rows = EntryRows()
                rows.add(1, 7, b"key %d" % number, b"value of epoch %d" % epoch)
                self.participants[index].append(
                    draft_entries(rows.columns(), versions=Versions.FROM_HEADER), Epoch(epoch), number
                )
        gathered = [self.participants[index] for index in indexes]
        if is_closed:
            parts = tuple(ClosingPart(p.number, p.identity.incarnation, p.end, p.running, blocks) for p in gathered)
            closing = Closing(
                Epoch(epoch), Epoch(self.previous), monotone_ns, monotone_ns, self.digests[self.previous], parts
            )
            for participant in gathered:
                participant.append(closing.draft(), Epoch(epoch))
            self.digests[epoch] = closing.digest(TIMELINE)
            self.previous = epoch
        self.ends[epoch] = tuple(participant.as_end() for participant in self.participants)

    def raw(self, index: int = 0) -> bytearray:
        return bytearray(b"".join(self.participants[index].pending).ljust(ALLOCATED_BYTES, b"\0"))

    def witness(self, epoch: int, monotone_ns: int = 0) -> DurableRecord:
        return DurableRecord(TIMELINE, Epoch(epoch), self.digests[epoch], 0, 0, monotone_ns, self.ends[epoch])

    def end(self, epoch: int, index: int = 0) -> int:
        return self.ends[epoch][index].end

    def examined(self, *raws: bytes | bytearray, is_recycled: bool = False) -> list[ExaminedFile]:
        found = []
        for index, raw in enumerate(raws or [self.raw(index) for index in range(self.count)]):
            participant = self.participants[index]
            record = FileRecord(
                participant.number,
                ChannelId(index),
                TIMELINE,
                participant.identity.incarnation,
                FileKind.LOG,
                FileState.ACTIVE,
                f"pwal_{index:04d}",
                is_recycled=is_recycled,
            )
            found.append(examine(record, f"pwal_{index:04d}", memoryview(bytes(raw))))
        return found

    def judged(
        self, *raws: bytes | bytearray, witness: DurableRecord | None = None, floor: int = 0, run_first: int = 1
    ) -> RecoveredEpoch:
        return judge(self.examined(*raws), witness, Epoch(floor), self.digests[floor], Epoch(run_first))


def written_to(raw: bytes | bytearray) -> int:
    """Behind the last byte that is not zero."""
    return len(raw.rstrip(b"\0"))


def three_epochs() -> Forge:
    forge = Forge()
    for epoch in (1, 2, 3):
        forge.epoch(epoch, 0, blocks=2)
    return forge


def test_a_whole_log_is_durable_to_its_end() -> None:
    forge = three_epochs()
    found = forge.judged(witness=forge.witness(3))
    assert (found.durable, found.highest_seen, found.digest) == (3, 3, forge.digests[3])
    assert found.files[0].end == forge.ends[3][0]
    assert found.files[0].voided is None
    assert [header.epoch for header in found.files[0].headers] == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_log_in_which_nothing_was_written_is_as_durable_as_the_manifest_says() -> None:
    forge = Forge()
    forge.digests[5] = b"x" * 16
    found = forge.judged(floor=5)
    assert (found.durable, found.highest_seen, found.digest) == (5, 5, b"x" * 16)
    assert forge.judged().files[0].end.end == FILE_HEADER_BYTES


# -- 1. the epoch file -----------------------------------------------------------------------------------------------


def test_a_durable_block_that_is_damaged_stops_the_start_wherever_the_bit_is() -> None:
    """At or below the witness nothing may be missing or different: every flipped bit is damage, and is located."""
    forge = three_epochs()
    witness = forge.witness(3)
    for bit in range(FILE_HEADER_BYTES * 8, forge.end(3) * 8, 5):
        raw = forge.raw()
        raw[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(Damage, match="durable block is damaged") as damage:
            forge.judged(raw, witness=witness)
        assert damage.value.path == "pwal_0000"
        assert damage.value.offset <= bit // 8


def test_a_file_cut_below_the_witness_stops_the_start_at_every_length() -> None:
    forge = three_epochs()
    for size in range(FILE_HEADER_BYTES, forge.end(3), 3):
        for raw in (forge.raw()[:size], forge.raw()[:size].ljust(ALLOCATED_BYTES, b"\0")):
            if raw == forge.raw():  # the last bytes of a closing block are zeros anyway
                continue
            with pytest.raises(Damage, match=f"reached byte {forge.end(3)}"):
                forge.judged(raw, witness=forge.witness(3))


def test_good_blocks_that_are_not_those_which_were_synced_are_damage() -> None:
    forge, other = three_epochs(), Forge()
    for epoch in (1, 2):
        other.epoch(epoch, 0, blocks=2)
    other.epoch(4, 0, blocks=2)
    assert other.end(4) == forge.end(3)
    with pytest.raises(Damage, match="running checksum differs"):
        forge.judged(other.raw(), witness=forge.witness(3))


def test_damage_in_a_file_that_took_no_part_in_the_last_epochs_is_found_too() -> None:
    forge = Forge(count=2)
    forge.epoch(1, 0, 1)
    for epoch in (2, 3, 4):
        forge.epoch(epoch, 0)
    raw = forge.raw(1)
    raw[forge.end(1, 1) - 10] ^= 1
    with pytest.raises(Damage) as damage:
        forge.judged(forge.raw(0), raw, witness=forge.witness(4))
    assert damage.value.path == "pwal_0001"


def test_a_witness_of_another_incarnation_of_the_number_is_ignored_for_this_file() -> None:
    forge = three_epochs()
    foreign = FileEnd(FileNumber(1), FileIdentity(TIMELINE, Incarnation(0xDEAD)), 7000, 1)
    witness = DurableRecord(TIMELINE, Epoch(3), forge.digests[3], 0, 0, 0, (foreign,))
    assert forge.judged(witness=witness).durable == 3


def test_what_lies_behind_the_witness_may_be_voided_but_nothing_before_it() -> None:
    forge = three_epochs()
    raw = forge.raw()
    raw[forge.end(3) - 10] ^= 1
    found = forge.judged(raw, witness=forge.witness(2))
    assert found.durable == 2
    voided = found.files[0].voided
    assert voided is not None
    assert (voided.start, voided.end) == (forge.end(2), written_to(raw))


def test_the_manifest_counts_where_it_is_newer_than_the_witness() -> None:
    forge = Forge()
    forge.digests |= {1: b"1" * 16, 5: b"5" * 16}
    forge.ends[1] = forge.ends[0]
    found = forge.judged(witness=forge.witness(1), floor=5)
    assert (found.durable, found.digest) == (5, b"5" * 16)


# -- 2. the log itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_below_a_later_one_was_durable_and_what_is_missing_of_it_is_damage(epoch: int) -> None:
    """No byte of epoch 3 was written before 2 was durable: a good block of 3 stands witness, without an epoch file."""
    forge = three_epochs()
    for offset in range(forge.end(epoch - 1), forge.end(epoch), 7):
        raw = forge.raw()
        raw[offset] ^= 1
        with pytest.raises(Damage, match=f"epoch {epoch} was durable") as damage:
            forge.judged(raw)
        assert damage.value.offset <= offset


def test_a_later_epoch_in_another_file_stands_witness_too() -> None:
    forge = Forge(count=2)
    forge.epoch(1, 0, 1)
    forge.epoch(2, 1)
    with pytest.raises(Damage, match="epoch 1 was durable"):
        forge.judged(forge.raw(0)[: forge.end(1, 0) - 200], forge.raw(1))


def test_epochs_before_this_run_are_not_requested() -> None:
    """Numbers jump on opening: what lies between the durable epoch and the first one of this run was never used."""
    forge = Forge()
    forge.previous, forge.digests[4] = 4, b"4" * 16
    forge.epoch(9, 0)
    forge.epoch(10, 0)
    found = forge.judged(floor=4, run_first=9)
    assert found.durable == 10
    with pytest.raises(Damage, match="epoch 5 was durable"):
        forge.judged(floor=4, run_first=5)


def test_an_epoch_that_stands_behind_a_later_one_is_damage() -> None:
    forge = Forge()
    forge.epoch(2, 0)
    forge.epoch(1, 0)
    with pytest.raises(Damage, match="epoch 1 stands behind epoch 2"):
        forge.judged()


# -- 3. the closing blocks -------------------------------------------------------------------------------------------


def test_the_last_epoch_is_durable_if_every_part_its_closing_block_names_verifies() -> None:
    forge = Forge(count=3)
    forge.epoch(1, 0, 1, 2)
    forge.epoch(2, 0, 2)
    found = forge.judged(witness=forge.witness(1))
    assert (found.durable, found.digest) == (2, forge.digests[2])
    assert [item.voided for item in found.files] == [None, None, None]


@pytest.mark.parametrize("index", [0, 1])
def test_one_bad_part_voids_the_last_epoch_in_every_file(index: int) -> None:
    forge = Forge(count=2)
    forge.epoch(1, 0, 1)
    forge.epoch(2, 0, 1, blocks=2)
    raws = [forge.raw(0), forge.raw(1)]
    raws[index][forge.end(1, index) + 70] ^= 1
    found = forge.judged(*raws)
    assert (found.durable, found.highest_seen) == (1, 2)
    for place, item in enumerate(found.files):
        assert item.end == forge.ends[1][place]
        assert item.voided is not None
        assert item.voided.start == forge.end(1, place)
        assert written_to(raws[place]) <= item.voided.end <= forge.end(2, place)
        assert item.voided.reason == ("torn" if place == index else "not durable: epoch 2")


def test_one_closing_block_is_enough_for_an_epoch_of_several_files() -> None:
    """It names all parts; that of the other file may be torn, as long as the blocks before it are whole."""
    forge = Forge(count=2)
    forge.epoch(1, 0, 1)
    closing = forge.end(1, 1) - 10
    found = forge.judged(forge.raw(0), forge.raw(1)[:closing])
    assert found.durable == 1
    assert found.files[1].headers[-1].kind == BlockKind.ENTRIES
    assert found.files[1].voided is not None


def test_an_epoch_that_was_never_closed_is_voided() -> None:
    forge = three_epochs()
    forge.epoch(4, 0, blocks=3, is_closed=False)
    found = forge.judged()
    assert (found.durable, found.highest_seen) == (3, 4)
    voided = found.files[0].voided
    assert voided is not None
    assert (voided.start, voided.end, voided.reason) == (forge.end(3), forge.end(4), "not durable: epoch 4")


def test_a_closing_block_that_names_a_file_which_is_not_there_is_not_whole() -> None:
    forge = Forge(count=2)
    forge.epoch(1, 0, 1)
    found = judge(forge.examined(forge.raw(0))[:1], None, Epoch(0), NO_DIGEST, Epoch(1))
    assert (found.durable, found.highest_seen) == (0, 1)


def test_a_closing_block_that_names_another_life_of_a_file_is_not_whole() -> None:
    forge = Forge()
    participant = forge.participants[0]
    part = ClosingPart(participant.number, Incarnation(0xDEAD), participant.end, participant.running, 0)
    participant.append(Closing(Epoch(1), Epoch(0), 0, 0, NO_DIGEST, (part,)).draft(), Epoch(1))
    assert forge.judged().durable == 0


@settings(deadline=None)
@given(st.data())
def test_any_cut_of_the_last_epoch_leaves_the_one_before(data: st.DataObject) -> None:
    forge = three_epochs()
    size = data.draw(st.integers(forge.end(2), forge.end(3)))
    is_filled = data.draw(st.booleans())
    raw = forge.raw()[:size].ljust(ALLOCATED_BYTES if is_filled else 0, b"\0")
    found = forge.judged(raw)
    whole = not any(forge.raw()[size : forge.end(3)]) if is_filled else size == forge.end(3)
    assert found.durable == (3 if whole else 2)
    assert found.files[0].end == forge.ends[found.durable][0]


@settings(deadline=None)
@given(st.integers(0, 4), st.sets(st.integers(0, 40), max_size=12), st.sets(st.integers(0, 40), max_size=12))
def test_whatever_sectors_of_the_last_epoch_are_lost_it_is_all_there_or_not_at_all(
    last: int, lost: set[int], lost_too: set[int]
) -> None:
    """A power cut loses any of the sectors that were not synced, in both files: the epoch is whole, or void in both."""
    forge = Forge(count=2)
    for epoch in range(1, last + 1):
        forge.epoch(epoch, 0, 1)
    forge.epoch(last + 1, 0, 1, blocks=6)
    raws = [forge.raw(0), forge.raw(1)]
    for index, sectors in enumerate((lost, lost_too)):
        for sector in sectors:
            start = forge.end(last, index) // 64 * 64 + sector * 64
            stop = min(start + 64, ALLOCATED_BYTES)
            start = max(start, forge.end(last, index))
            raws[index][start:stop] = bytes(max(0, stop - start))
    found = forge.judged(*raws, witness=forge.witness(last))
    assert found.durable in (last, last + 1)
    for index, item in enumerate(found.files):
        remaining = [header for header in item.headers if header.epoch == last + 1 and header.kind == BlockKind.ENTRIES]
        assert len(remaining) == (6 if found.durable > last else 0)
        assert raws[index][: item.end.end] == forge.raw(index)[: item.end.end], "what counts is what was written"


# -- what was seen is used up ----------------------------------------------------------------------------------------


def test_blocks_behind_a_tear_or_behind_zeros_count_as_seen() -> None:
    """Their epoch's number is used, though nothing of it counts."""
    for loss in (bytes(64), b"\xff" * 64):
        forge = Forge()
        forge.epoch(1, 0)
        forge.epoch(2, 0, blocks=2, is_closed=False)
        raw = forge.raw()
        raw[forge.end(1) : forge.end(1) + 64] = loss
        found = forge.judged(raw)
        assert (found.durable, found.highest_seen) == (1, 2)


def test_blocks_of_an_earlier_life_behind_the_end_of_a_recycled_file_are_nothing() -> None:
    old, new = Forge(), Forge()
    for epoch in range(1, 6):
        old.epoch(epoch, 0, blocks=3)
    new.participants[0].identity = FileIdentity(TIMELINE, Incarnation(0x77))
    raw, checksum = FileHeader(FileNumber(1), ChannelId(0), FileKind.LOG, ALLOCATED_BYTES, 5).placed(
        new.participants[0].identity
    )
    new.participants[0].pending, new.participants[0].running = [raw], run_on(0, checksum)
    new.epoch(7, 0)
    mixed = new.raw()[: new.end(7)] + old.raw()[new.end(7) :]
    found = judge(new.examined(mixed, is_recycled=True), None, Epoch(0), NO_DIGEST, Epoch(7))
    assert (found.durable, found.highest_seen) == (7, 7)
    assert found.files[0].voided is None


def test_the_monotone_time_continues_from_the_newest_one_known() -> None:
    forge = Forge()
    forge.epoch(1, 0, monotone_ns=500)
    forge.epoch(2, 0, monotone_ns=900)
    forge.epoch(3, 0)
    assert forge.judged().monotone_ns == 900
    assert forge.judged(witness=forge.witness(3, monotone_ns=1200)).monotone_ns == 1200


# -- not ours --------------------------------------------------------------------------------------------------------


def test_a_file_that_does_not_begin_with_its_header_is_damage() -> None:
    forge = three_epochs()
    for offset in (0, 5, 40, FILE_HEADER_BYTES - 1):
        raw = forge.raw()
        raw[offset] ^= 1
        with pytest.raises(Damage, match="file header") as damage:
            forge.judged(raw)
        assert damage.value.offset == 0
    with pytest.raises(Damage, match="file header"):
        forge.judged(bytes(100))


def test_blocks_of_a_newer_format_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    forge = Forge()
    forge.epoch(1, 0)
    monkeypatch.setattr("warren.records.block.FORMAT_VERSION", 2)
    forge.participants[0].append(draft(BlockKind.ENTRIES, [b"tomorrow's"]), Epoch(2))
    monkeypatch.undo()
    with pytest.raises(Refused, match="format 2") as refusal:
        forge.judged()
    assert "newer warren" in refusal.value.hint
