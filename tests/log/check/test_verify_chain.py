"""The chain of closing blocks: every link and every part that is not right is blamed, with its place."""

from __future__ import annotations

import pytest

from tests.log.forge import TIMELINE, Forge, close_together
from warren.base.ids import Epoch
from warren.durability.closing_block import NO_DIGEST, Closing, ClosingPart
from warren.log.check.verify_chain import DAMAGED, PROBLEMS_MAX, Chain, ChainFile, prove_chain
from warren.log.file_record import FileRecord, Voided
from warren.log.read.blocks import FileScan, trusted
from warren.log.read.scan import scan_one
from warren.testing.memory_files import MemoryFiles

START = (Epoch(0), NO_DIGEST)
LATER = Epoch(99)


class Two:
    """Two files whose epochs are closed together."""

    def __init__(self) -> None:
        files = MemoryFiles()
        self.forges = [Forge(files, 1, 0, room=1 << 16), Forge(files, 2, 1, room=1 << 16)]
        self.last: Closing | None = None

    def epoch(self, epoch: int, *takes_part: int, spoilt: bool = False) -> None:
        chosen = [self.forges[index] for index in takes_part or (0, 1)]
        for forge in chosen:
            forge.entries(epoch, b"%d" % epoch)
        self.last = close_together(chosen, epoch, self.last, spoilt=spoilt)

    def scans(self, *records: FileRecord) -> list[FileScan]:
        chosen = records or tuple(forge.active() for forge in self.forges)
        return [scan_one(f.files, f.path, r, LATER) for f, r in zip(self.forges, chosen, strict=True)]

    def prove(self, scans: list[FileScan] | None = None) -> Chain:
        assert self.last is not None
        files = [ChainFile.of(scan) for scan in scans or self.scans()]
        return prove_chain(files, START, (self.last.epoch, self.last.digest(TIMELINE)))


@pytest.fixture
def two() -> Two:
    created = Two()
    created.epoch(1)
    created.epoch(2, 0)
    created.epoch(5)  # numbers jump where a store was opened anew
    return created


def blamed(chain: Chain) -> list[tuple[int, str]]:
    return [(problem.epoch, problem.what) for problem in chain.problems]


def test_a_whole_chain_is_complete(two: Two) -> None:
    chain = two.prove()
    assert chain.is_complete
    assert (chain.anchor, chain.linked, chain.last, chain.lost) == (0, 3, 5, [])


def test_a_part_closed_behind_other_blocks_is_blamed(two: Two) -> None:
    two.epoch(6, 1, spoilt=True)
    [(epoch, what)] = blamed(two.prove())
    assert (epoch, what) == (6, "epoch 6 was closed behind other blocks than those here")


def test_a_participant_without_its_closing_block_is_blamed_at_the_place_it_is_missing(two: Two) -> None:
    for forge in two.forges:
        forge.entries(6, b"x")
    named = two.forges[1].end
    parts = tuple(ClosingPart(f.number, f.identity.incarnation, f.end, f.participant.running, 1) for f in two.forges)
    assert two.last is not None
    two.last = Closing(Epoch(6), Epoch(5), 0, 0, two.last.digest(TIMELINE), parts)
    two.forges[0].append(two.last)
    [problem] = two.prove().problems
    assert (problem.path, problem.offset) == (two.forges[1].path, named)
    assert problem.what == "epoch 6 is not whole: its closing block is missing here"


def test_a_link_to_another_digest_is_blamed(two: Two) -> None:
    assert two.last is not None
    other = Closing(Epoch(5), Epoch(2), 1, 1, b"another digest..", ())
    two.forges[0].entries(6, b"x")
    two.last = close_together([two.forges[0]], 6, other)
    assert blamed(two.prove()) == [(6, "epoch 6 does not hold the digest of epoch 5")]


def test_a_skipped_epoch_is_blamed(two: Two) -> None:
    unseen = Closing(Epoch(6), Epoch(5), 0, 0, NO_DIGEST, ())
    two.forges[0].entries(7, b"x")
    two.last = close_together([two.forges[0]], 7, unseen)
    assert blamed(two.prove()) == [(7, "epoch 7 follows epoch 6, but here it follows 5")]


def test_a_chain_that_ends_too_early_is_blamed(two: Two) -> None:
    chain = prove_chain([ChainFile.of(scan) for scan in two.scans()], START, (Epoch(9), NO_DIGEST))
    assert blamed(chain) == [(9, "the log ends with epoch 5, 9 was durable")]


def test_a_file_that_takes_part_and_is_gone_is_blamed(two: Two) -> None:
    chain = two.prove(two.scans()[:1])
    assert {what for _, what in blamed(chain)} == {
        f"epoch {epoch} has a part in log file 2, which is gone" for epoch in (1, 5)
    }


def test_what_lies_before_the_anchor_is_not_requested(two: Two) -> None:
    assert two.last is not None
    anchor, end = (two.last.previous, two.last.previous_digest), (two.last.epoch, two.last.digest(TIMELINE))
    chain = prove_chain([ChainFile.of(scan) for scan in two.scans()], anchor, end)
    assert chain.is_complete and (chain.anchor, chain.linked) == (2, 1)


def test_a_closing_lost_to_a_repair_is_counted_and_the_running_checksum_taken_up_again(two: Two) -> None:
    """Epoch 2 stands in file 1 alone; its blocks are voided. Epoch 5, behind the hole, is proved all the same."""
    blocks = [header for header in _headers(two.scans()[0]) if header[2] == 2]
    hole = Voided(blocks[0][0], blocks[-1][1], f"{DAMAGED}: a test")
    sealed = [two.forges[0].sealed(hole), two.forges[1].active()]
    running = two.scans(*sealed)[0].running
    scans = two.scans(sealed[0].changed(running=running), sealed[1])
    assert [scan.verdict.word for scan in scans] == ["ok", "ok"]
    chain = two.prove(scans)
    assert (chain.is_complete, chain.linked, chain.lost) == (True, 2, [2])


def test_many_problems_are_counted_and_not_all_reported(two: Two) -> None:
    for epoch in range(6, 6 + PROBLEMS_MAX + 5):
        two.epoch(epoch, 0, spoilt=True)
    chain = two.prove()
    assert (len(chain.problems), chain.problems_more) == (PROBLEMS_MAX, 5)


def _headers(scan: FileScan) -> list[tuple[int, int, int]]:
    return [(header.offset, header.end, header.epoch) for header in trusted(scan.view, scan.good)]
