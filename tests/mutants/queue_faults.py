"""Seeded faults of the queue side: orders that a tired engineer might turn round. The crash tests of queues must find
each (tests/broker/test_queue_crashes); `known` states are tried first. Named in docs/failure_model.md."""

from __future__ import annotations

from tests.mutants.faults import QUEUES, Fault, Patch
from tests.mutants.queue_wrongs import (
    ack_row_left_out,
    answered_before_it_is_durable,
    clean_stop_is_not_due,
    clean_stop_stays,
    counters_left_out,
    moved_in_two_sessions,
    released_before_moved,
    released_before_written_again,
    remove_left_out,
    run_before_bodies,
    transients_stay,
)

QUEUE_FAULTS: tuple[Fault, ...] = (
    Fault(
        "told-before-durable", "a put is answered, and becomes durable when another client waits", (QUEUES,),
        (Patch("warren.log.writer:LogWriter.wait", answered_before_it_is_durable),),
        known=("28/244",),
    ),
    Fault(
        "run-before-bodies", "a run is confirmed one epoch before the bodies that it names are synced", (QUEUES,),
        (Patch("warren.durability.group_commit:GroupCommit._write_and_sync", run_before_bodies),),
        known=("25/127",),
    ),
    Fault(
        "released-before-written-again", "a file goes before its runs are durable elsewhere", (QUEUES,),
        (Patch("warren.queue_index.cleaner:Cleaner._write_again", released_before_written_again),),
        known=("38/284",),
    ),
    Fault(
        "released-before-moved", "a file of bodies goes before the rows are durable that say where they are", (QUEUES,),
        (Patch("warren.message_store.index:RowIndex.move", released_before_moved),),
        known=("38/289",),
    ),
    Fault(
        "counters-left-out", "a dequeue does not write the counters", (QUEUES,),
        (Patch("warren.queues.variable_queue:VariableQueue._release", counters_left_out),),
        known=("25/333",),
    ),
    Fault(
        "ack-row-left-out", "what is gone of a run is not written before all of it is", (QUEUES,),
        (Patch("warren.queue_index.batch:_write_rows", ack_row_left_out),),
        known=("17/192",),
    ),
    Fault(
        "remove-left-out", "a run of which everything is gone stays", (QUEUES,),
        (Patch("warren.queue_index.batch:_write_rows", remove_left_out),),
        known=("17/104",),
    ),
    Fault(
        "moved-in-two-sessions", "a dead-lettered message leaves in one session and arrives in another", (QUEUES,),
        (Patch("warren.broker.dead_letters:_deliver", moved_in_two_sessions),),
        known=("25/273",),
    ),
    Fault(
        "transients-stay", "a start leaves the transient store as it finds it", (QUEUES,),
        (Patch("warren.message_store.body_files:TransientBodyFiles._delete_everything", transients_stay),),
        known=("17/60",),
    ),
    Fault(
        "clean-stop-believed", "a clean stop is not revoked by the next start", (QUEUES,),
        (
            Patch("warren.broker.storage:QueueStorage._variable", clean_stop_stays),
            Patch("warren.queues.index_counters:IndexCounters.__init__", clean_stop_is_not_due),
        ),
        known=("38/199",),
    ),
)  # fmt: skip
