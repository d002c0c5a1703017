from __future__ import annotations

from tests.queues.plain_index import PlainIndex
from warren.base.ids import QueueId, SequenceId
from warren.base.messages import QueuePlace, Run
from warren.broker.unit_of_work import UnitOfWork
from warren.testing.fakes import ManualClock


def test_an_empty_second_session_does_not_return_before_the_first_is_durable() -> None:
    """What could not be handed over is requeued in a session of its own; of transient messages that writes nothing."""
    index = PlainIndex(ManualClock(), is_prompt=False)
    work = UnitOfWork(index.begin, [], lambda work, error: error)
    work.index_batch.publish(QueuePlace(QueueId(7)), Run(SequenceId(0), 1, 4), [b"body"])
    work.end_batch()
    written = work.epoch
    assert written == index.epoch > index.durable_epoch
    assert work.index_batch is not None
    work.end_batch()
    assert work.epoch == written
