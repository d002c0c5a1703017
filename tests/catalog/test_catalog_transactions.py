"""The order in which log and SQL change: which one validates, which is durable first, when each commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from sqlalchemy import NestedTransaction
from sqlalchemy.exc import OperationalError

from tests.catalog.catalog_stage import CatalogStage, bound, check, declared, home, names, rows_in_log
from warren.base.errors import DiskFailure, OutOfRoom, SyncFailed
from warren.base.ids import Epoch, VhostId
from warren.catalog import queues
from warren.catalog.catalog import FunctionChange, _PendingChange
from warren.catalog.queues import QueueRow
from warren.catalog.rows import CATALOG, LAST_CHANGE, Inequivalent, RowWriter


@pytest.fixture
def stage() -> Iterator[CatalogStage]:
    new_stage = CatalogStage()
    new_stage.begin()
    yield new_stage
    new_stage.stop()


def declaring(vhost_id: VhostId, name: str) -> Callable[[RowWriter], QueueRow]:
    return lambda writer: queues.declare(writer, vhost_id, name)


def last_change(stage: CatalogStage) -> int:
    """The epoch of the log's last change."""
    view = stage.database.view_now()
    found = view.get(CATALOG, LAST_CHANGE)
    view.close()
    return 0 if found is None else found.version[0]


def test_sql_commits_when_the_epoch_is_durable_and_before_the_answer(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    events: list[str] = []

    def as_step(name: str, call: Callable[[], None]) -> None:
        in_log = {image["name"] for image in rows_in_log(stage.database).values()}  # of what is durable
        events.append(f"{name}, durable: {'orders' in in_log}")
        call()

    stage.forgetful.as_step = as_step
    declared(stage.catalog, here.id, "orders")
    events.append("answered")
    assert events == ["commit, durable: True", "answered"]


def test_what_sql_refuses_never_reaches_the_log(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    declared(stage.catalog, here.id, "orders")
    before = rows_in_log(stage.database), last_change(stage)
    with pytest.raises(Inequivalent):
        declared(stage.catalog, here.id, "orders", durable=False)
    stage.database.make_durable()
    assert (rows_in_log(stage.database), last_change(stage)) == before


def test_declarations_of_one_epoch_share_one_sql_transaction(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    before = len(stage.forgetful.states)
    epochs = [stage.catalog.submit(declaring(here.id, f"q{n}"))[1] for n in range(5)]
    assert len(set(epochs)) == 1
    assert len(stage.forgetful.states) == before, "nothing is committed that is not durable"
    for epoch in epochs:
        stage.catalog.settle(epoch)
    assert len(stage.forgetful.states) == before + 1
    assert names(stage.catalog) == [f"q{n}" for n in range(5)]


def test_a_change_of_a_later_epoch_begins_another_sql_transaction(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    before = len(stage.forgetful.states)
    _, first = stage.catalog.submit(declaring(here.id, "a"))
    stage.database.make_durable()
    _, second = stage.catalog.submit(declaring(here.id, "b"))
    assert second > first
    assert len(stage.forgetful.states) == before + 1
    assert stage.catalog.applied == first
    stage.catalog.settle(first)
    assert stage.catalog.applied == first, "an answer does not wait for later changes"
    stage.catalog.settle(second)
    assert stage.catalog.applied == second


def test_many_threads_may_declare_at_once(stage: CatalogStage) -> None:
    here = home(stage.catalog)

    def work(thread: int) -> None:
        for n in range(10):
            declared(stage.catalog, here.id, f"q{thread}-{n}")

    threads = [Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(stage.catalog)) == 40
    check(stage.catalog, stage.database)


def test_changes_that_wait_for_the_disk_share_the_next_epoch_and_transaction(stage: CatalogStage) -> None:
    """While an epoch is on its way others gather; then one of them does the work of all."""
    here = home(stage.catalog)
    commit, gate = stage.database.log.commit, Event()
    before, syncs = len(stage.forgetful.states), [0]
    write_and_sync = commit._write_and_sync

    def slowly(parts: Any) -> None:
        syncs[0] += 1
        if syncs[0] == 1:
            gate.wait(30)
        write_and_sync(parts)

    commit._write_and_sync = slowly  # type: ignore[method-assign]
    threads = [Thread(target=declared, args=(stage.catalog, here.id, f"q{n}")) for n in range(6)]
    threads[0].start()
    while not syncs[0]:
        sleep(0.001)
    for thread in threads[1:]:
        thread.start()
    while len(stage.catalog._waiting) < 5:
        sleep(0.001)
    gate.set()
    for thread in threads:
        thread.join()
    assert syncs[0] == 2
    assert len(stage.forgetful.states) == before + 2
    assert len(names(stage.catalog)) == 6
    check(stage.catalog, stage.database)


def test_changes_that_wait_for_a_disk_that_fails_all_fail(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    _, epoch = stage.catalog.submit(declaring(here.id, "orders"))
    stage.database.log.commit.open_epoch = Epoch(epoch + 1)  # it has been closed, and is on its way
    stage.database.log.commit.fail(SyncFailed("the disk is gone"))
    for _ in range(2):
        with pytest.raises(SyncFailed):
            stage.catalog.submit(declaring(here.id, "more"))
    assert not stage.catalog._waiting
    stage.catalog.close = stage.database.close = lambda: None  # type: ignore[method-assign]
    stage.database.abandon()


def test_a_refusal_undoes_all_of_its_own_change_and_no_other(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    first, epoch = stage.catalog.submit(declaring(here.id, "orders"))

    def work(writer: RowWriter) -> None:
        queues.declare(writer, here.id, "half")
        queues.declare(writer, here.id, "orders", durable=False)

    with pytest.raises(Inequivalent):
        stage.catalog.submit(work)
    stage.catalog.settle(epoch)
    assert names(stage.catalog) == ["orders"]
    check(stage.catalog, stage.database)
    assert declared(stage.catalog, here.id, "orders") == first


def test_declaring_what_is_there_but_not_durable_waits_for_it(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    first, epoch = stage.catalog.submit(declaring(here.id, "orders"))
    again, same = stage.catalog.submit(declaring(here.id, "orders"))
    assert (again, same) == (first, epoch)
    assert stage.catalog.applied < epoch
    stage.catalog.settle(same)
    assert stage.database.log.durable >= epoch


def test_a_read_sees_only_what_is_durable(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    _, epoch = stage.catalog.submit(declaring(here.id, "orders"))
    assert stage.database.log.durable < epoch
    assert names(stage.catalog) == ["orders"]
    assert stage.database.log.durable >= epoch


def test_a_change_stands_when_the_log_has_it_and_the_sql_commit_fails(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    stage.forgetful.is_broken = True
    orders = declared(stage.catalog, here.id, "orders")
    assert "has no room" in stage.catalog.problems[0]
    with pytest.raises(OutOfRoom, match="no room"):
        names(stage.catalog)
    before = last_change(stage)
    with pytest.raises(OutOfRoom):
        declared(stage.catalog, here.id, "refused")
    assert last_change(stage) == before, "a change that is refused is not in the log"
    stage.forgetful.is_broken = False
    assert names(stage.catalog) == ["orders"]
    assert not stage.catalog.problems
    assert declared(stage.catalog, here.id, "orders") == orders
    check(stage.catalog, stage.database)
    bound(stage.catalog, "amq.topic", declared(stage.catalog, here.id, "orders"))
    check(stage.catalog, stage.database)


def test_a_catalog_that_could_not_commit_is_whole_after_a_restart(stage: CatalogStage) -> None:
    here = home(stage.catalog)
    stage.forgetful.is_broken = True
    declared(stage.catalog, here.id, "orders")
    with pytest.raises(OutOfRoom):
        stage.catalog.close()
    stage.forgetful.is_broken = False
    assert names(stage.again_without_catalog()) == ["orders"]


def test_a_change_stands_when_the_log_has_it_and_its_savepoint_cannot_be_released(
    stage: CatalogStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = home(stage.catalog)

    def fail(savepoint: NestedTransaction) -> None:
        raise OperationalError("RELEASE SAVEPOINT", None, Exception("disk I/O error"))

    def work(writer: RowWriter) -> QueueRow:
        new_stage = queues.declare(writer, here.id, "orders")
        monkeypatch.setattr(NestedTransaction, "commit", fail)
        return new_stage

    orders, epoch = stage.catalog.submit(work)
    monkeypatch.undo()
    stage.catalog.settle(epoch)
    assert declared(stage.catalog, here.id, "orders") == orders
    check(stage.catalog, stage.database)


def test_an_error_of_sqls_disk_does_not_lose_the_changes_of_others(stage: CatalogStage) -> None:
    """SQLite rolls back the whole transaction on its own when its disk fails in the middle of one."""
    here = home(stage.catalog)
    _, epoch = stage.catalog.submit(declaring(here.id, "orders"))

    def work(writer: RowWriter) -> None:
        writer.connection.exec_driver_sql("ROLLBACK")
        raise OperationalError("INSERT", None, Exception("disk I/O error"))

    with pytest.raises(DiskFailure, match="disk I/O error"):
        stage.catalog.submit(work)
    stage.catalog.settle(epoch)
    assert names(stage.catalog) == ["orders"]
    check(stage.catalog, stage.database)


def test_a_change_after_an_error_of_sqls_disk_finds_what_the_log_has(stage: CatalogStage) -> None:
    """Both are executed together, and SQL is brought up in between."""
    here = home(stage.catalog)
    stage.catalog.submit(declaring(here.id, "orders"))

    def break_down(writer: RowWriter) -> None:
        writer.connection.exec_driver_sql("ROLLBACK")
        raise OperationalError("INSERT", None, Exception("disk I/O error"))

    def work(writer: RowWriter) -> QueueRow | None:
        queues.declare(writer, here.id, "more")
        return queues.get(writer.connection, here.id, "orders")

    broken = _PendingChange(FunctionChange(break_down), None)
    stage.catalog._waiting.append(broken)
    assert stage.catalog.change(work) is not None
    assert isinstance(broken.error, DiskFailure)
    assert names(stage.catalog) == ["more", "orders"]
    check(stage.catalog, stage.database)


def test_a_log_that_cannot_be_synced_leaves_sql_where_it_was() -> None:
    stage = CatalogStage()
    here = home(stage.begin())
    before = stage.forgetful.states[-1]
    _, epoch = stage.catalog.submit(declaring(here.id, "orders"))
    stage.database.log.commit.fail(SyncFailed("the disk is gone"))
    with pytest.raises(SyncFailed):
        stage.catalog.settle(epoch)
    with pytest.raises(SyncFailed):
        names(stage.catalog)
    assert stage.forgetful.states[-1] == before
    stage.database.abandon()


def test_an_error_in_the_work_leaves_no_transaction_open(stage: CatalogStage) -> None:
    here = home(stage.catalog)

    def work(writer: RowWriter) -> None:
        queues.declare(writer, here.id, "orders")
        raise KeyError("a fault of the caller")

    with pytest.raises(KeyError):
        stage.catalog.change(work)
    assert names(stage.catalog) == []
    assert declared(stage.catalog, here.id, "orders").name == "orders"
    check(stage.catalog, stage.database)
