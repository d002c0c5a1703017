"""Seeded faults that bring defects of issue 12 back. Tests of the suite catch each; `known` names them."""

from __future__ import annotations

from typing import Any

from tests.mutants.faults import TESTS, Fault, Patch
from tests.mutants.wrongs import Function
from warren.base.errors import WarrenError
from warren.base.ids import Epoch


def does_nothing(real: Function) -> Function:
    return lambda *arguments, **named: None


def is_false(real: Function) -> Function:
    return lambda *arguments, **named: False


def returns_its_argument(real: Function) -> Function:
    return lambda argument: argument


def catches_own_errors_only(real: Function) -> Function:
    def run(task: Any, work: Any) -> bool:
        try:
            work()
        except WarrenError as error:
            task.failed(error)
            return False
        task.succeeded()
        return True

    return run


def ignores_that_passes_fail(real: Function) -> Function:
    def is_behind(upkeep: Any) -> bool:
        return bool(upkeep._garbage_bytes >= 2 * upkeep._due_bytes)

    return is_behind


def abandons_the_whole_batch(real: Function) -> Function:
    return lambda attempt: None


def raises_when_sql_fails(real: Function) -> Function:
    def note_behind(catalog: Any, error: Exception) -> None:
        raise error

    return note_behind


def applies_for_a_reader(real: Function) -> Function:
    def view_at(database: Any, epoch: Epoch) -> Any:
        database.log.wait(epoch)
        return database.view_now()

    return view_at


def deletes_without_comparing(real: Function) -> Function:
    def delete(index: Any, unit: Any, seen: Any) -> bool:
        with index._lock:
            return index._entries.pop(unit, None) is not None

    return delete


def takes_any_incarnation(real: Function) -> Function:
    def is_identified(file: Any, path: str, record: Any) -> bool | None:
        return True if real(file, path, record) is None else real(file, path, record)

    return is_identified


def leaves_before_a_scan_finds_it(real: Function) -> Function:
    return lambda slice_, scannable: slice_.contents is None


def compares_values_only(real: Function) -> Function:
    return lambda current, received: current == received


DEFECT_FAULTS: tuple[Fault, ...] = (
    Fault(
        "own-errors-only", "a background task handles no exception but Warren's own", (TESTS,),
        (Patch("warren.base.threads:BackgroundTask.run", catches_own_errors_only),),
        known=("tests/broker/test_garbage_upkeep.py::test_a_pass_that_raises_anything_is_an_alarm_and_blocks_no_publisher",),
    ),
    Fault(
        "alarm-stays", "a good round does not clear the alarm of its task", (TESTS,),
        (Patch("warren.base.threads:BackgroundTask.succeeded", does_nothing),),
        known=("tests/base/test_threads_background.py::test_a_failed_round_is_an_alarm_until_the_next_good_round",),
    ),
    Fault(
        "held-back-for-ever", "publishers wait for an upkeep whose passes fail", (TESTS,),
        (Patch("warren.broker.garbage:GarbageUpkeep.is_behind", ignores_that_passes_fail),),
        known=("tests/broker/test_garbage_upkeep.py::test_a_pass_that_raises_anything_is_an_alarm_and_blocks_no_publisher",),
    ),
    Fault(
        "batch-abandoned", "one queue that fails takes the publishes of all others with it", (TESTS,),
        (Patch("warren.broker.request_batch:_Execution.failing", abandons_the_whole_batch),),
        known=("tests/broker/test_failing_batch.py::test_a_queue_that_was_reached_before_the_one_that_failed_loses_nothing",),
    ),
    Fault(
        "sql-decides", "a change that the log has fails when SQL cannot commit it", (TESTS,),
        (Patch("warren.catalog.catalog:Catalog._note_behind", raises_when_sql_fails),),
        known=("tests/catalog/test_catalog_transactions.py::test_a_change_stands_when_the_log_has_it_and_the_sql_commit_fails",),
    ),
    Fault(
        "ticket-kept", "a change that fails keeps those behind it waiting", (TESTS,),
        (Patch("warren.catalog.catalog:ChangeOrder.release_ticket", does_nothing),),
        known=("tests/catalog/test_catalog_change_order.py",),
    ),
    Fault(
        "applied-for-a-reader", "a paged message is read by applying the log in the event loop", (TESTS,),
        (Patch("warren.snapshot.database:Database.view_at", applies_for_a_reader),),
        known=("tests/server/test_paged_reads.py",),
    ),
    Fault(
        "positions-leave-too-early", "positions of messages leave memory before a scan finds them", (TESTS,),
        (Patch("warren.queues.subqueues:_may_leave", leaves_before_a_scan_finds_it),),
        known=("tests/queues/test_subqueues_delta.py::test_a_position_stays_in_memory_until_a_scan_finds_it",),
    ),
    Fault(
        "sessions-kept", "the message store keeps a note of every session", (TESTS,),
        (Patch("warren.message_store.store:MessageStore._drop_durable", does_nothing),),
        known=("tests/growth/test_store_growth.py",),
    ),
    Fault(
        "changed-rows-written-again", "cleaning writes rows again that were acknowledged while it read them", (TESTS,),
        (Patch("warren.queue_index.batch:StreamLock.is_changed", is_false),),
        known=("tests/queue_index/test_cleaner.py",),
    ),
    Fault(
        "any-incarnation", "a recycled log file is taken for the one that had its number", (TESTS,),
        (Patch("warren.log.log_files:_is_identified", takes_any_incarnation),),
        known=("tests/log/test_log_files_file_lookup.py::test_another_incarnation_of_a_recycled_file_is_never_taken_for_it",),
    ),
    Fault(
        "deleted-without-comparing", "the collector deletes an entry whatever has become of it", (TESTS,),
        (Patch("warren.message_store.index:MemoryIndex._delete", deletes_without_comparing),),
        known=("tests/message_store/test_collector.py::test_the_collector_deletes_an_entry_only_if_it_is_as_it_was_seen",),
    ),
    Fault(
        "departure-not-noted", "x-expires does not count from the departure of the last consumer", (TESTS,),
        (Patch("warren.broker.queue:BrokerQueue.last_consumer_removed", does_nothing),),
        known=("tests/server/test_unused_queues.py",),
    ),
    Fault(
        "grants-kept", "credits of a channel-wide prefetch that were not used are lost", (TESTS,),
        (Patch("warren.server.consumer:SharedPrefetch._end_round", does_nothing),),
        known=("tests/server/test_consumer_shared_prefetch.py::test_a_grant_that_is_not_used_goes_to_the_next",),
    ),
    Fault(
        "deaths-not-merged", "entries of x-death with one queue and reason stay several", (TESTS,),
        (Patch("warren.broker.death_headers:_merged", returns_its_argument),),
        known=("tests/broker/test_death_headers.py::test_entries_of_one_queue_and_reason_are_merged",),
    ),
    Fault(
        "ten-is-ten-point-zero", "10 and 10.0 are the same argument of a queue", (TESTS,),
        (Patch("warren.broker.declarations.errors:_is_same", compares_values_only),),
        known=("tests/broker/declarations/test_errors_equivalence.py::test_other_values_differ",),
    ),
    Fault(
        "fork-not-noticed", "a forked child may use the store of its parent", (TESTS,),
        (Patch("warren.base.environment:OwningProcess.check", does_nothing),),
        known=("tests/base/test_environment_process.py::test_a_check_passes_in_the_owner_and_raises_in_a_child",),
    ),
)  # fmt: skip
