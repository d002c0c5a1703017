"""The scrub: every message on disk is read, a little at a time; damage is reported once it is certain."""

from __future__ import annotations

from tests.message_store.store_stage import A, B, StoreStage
from warren.base.errors import Damage
from warren.base.ids import SequenceId
from warren.base.messages import QueuePlace
from warren.broker.garbage import EVERY_SECONDS, Scrub
from warren.files.protocol import join
from warren.queue_index.history_format import DequeueReason


class ScrubStage:
    def __init__(self) -> None:
        self.below = StoreStage()
        self.reported: list[tuple[QueuePlace, SequenceId]] = []
        self.open()

    def open(self) -> None:
        below = self.below
        queues = lambda: [A.queue, B.queue]  # noqa: E731
        self.scrub = Scrub(below.database, below.store, queues, below.stage.clock, self._report)

    def _report(self, place: QueuePlace, first: SequenceId, damage: Damage) -> None:
        self.reported.append((place, first))

    def spoil(self, mark: bytes) -> None:
        """Flip a bit wherever the mark stands in the log."""
        disk, directory = self.below.stage.disk, join(self.below.database.directory, "log")
        for name in disk.list(directory):
            path = join(directory, name)
            if not name.startswith("pwal"):
                continue
            file = disk.open(path, writable=True)
            data = bytes(file.read_at(0, file.size()))
            if (at := data.find(mark)) >= 0:
                file.write_at(at, [bytes([data[at] ^ 1])])
            file.close()


def test_a_pass_is_done_in_steps_and_begins_again_a_day_later() -> None:
    stage = ScrubStage()
    for _ in range(6):
        stage.below.publish([b"x" * 5000], A)
    stage.below.database.settle()
    steps = 0
    while not stage.scrub.passes:
        stage.scrub.step(5000)
        steps += 1
    assert steps >= 6
    stage.scrub.step()
    assert stage.scrub.passes == 1
    stage.below.stage.clock.advance_ns(int(EVERY_SECONDS * 1e9) + 1)
    stage.scrub.step()
    assert (stage.scrub.passes, stage.reported) == (2, [])
    stage.below.close()


def test_damaged_contents_are_reported_with_their_queue_and_the_others_are_read() -> None:
    stage = ScrubStage()
    stage.below.publish([b"good" * 2000], A)
    run = stage.below.publish([b"spoiled" * 2000], B)[B]
    stage.below.publish([b"fine" * 2000], A)
    stage.below.reopen()
    stage.spoil(b"spoiledspoiled")
    stage.open()
    stage.scrub.step()
    assert stage.reported == [(B, run.first)]
    stage.below.close()


def test_what_is_acknowledged_while_it_is_read_is_no_damage() -> None:
    stage = ScrubStage()
    run = stage.below.publish([b"spoiled" * 2000], A)[A]
    stage.below.reopen()
    stage.spoil(b"spoiledspoiled")
    stage.open()
    rows = stage.scrub._rows_behind(A.queue, b"")
    changes = stage.below.queues.begin()
    changes.dequeue(A, run, 1, [(run.first, run.end)], DequeueReason.ACKED)
    stage.below.log.wait(changes.end())
    assert list(stage.scrub._check(A.queue, rows)) and stage.reported == []
    stage.below.close()
