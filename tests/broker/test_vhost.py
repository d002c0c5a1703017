"""The queues of a vhost: declared, found, deleted, restarted; API and implementation are separate."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import warren.broker.queue
import warren.broker.queue_api
from tests.broker.stage import BrokerStage, Waiter, bodies, settling
from warren.base.errors import Refused
from warren.base.messages import Publication
from warren.broker.errors import QueueDeleted, QueuesClosed, UnknownQueue
from warren.catalog.rows import Inequivalent
from warren.testing.memory_files import SYNCED


@pytest.fixture
def stage() -> Iterator[BrokerStage]:
    stage = BrokerStage().up()
    yield stage
    stage.down()


def test_a_queue_is_declared_once_and_found_by_name(stage: BrokerStage) -> None:
    orders = stage.queue("orders", max_length=5)
    assert stage.queue("orders", max_length=5) is orders is stage.vhost.find_queue("orders")
    with pytest.raises(Inequivalent, match="x-max-length 5"):
        stage.queue("orders", max_length=6)
    with pytest.raises(UnknownQueue, match="'bills'"):
        stage.vhost.find_queue("bills")
    with pytest.raises(Refused, match="unknown kind of backing queue 'none'"):
        stage.queue("bills", backing="none")
    assert stage.vhost.queue_names() == ["orders"]


def test_api_and_implementation_are_two_modules(stage: BrokerStage) -> None:
    """QP-02: the implementation knows neither locks nor callers; the API touches no backing queue."""

    def names_in(module: object) -> set[str]:
        tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return {f"{node.module}.{alias.name}" for node in imports for alias in node.names}

    of_queue, of_traffic = names_in(warren.broker.queue), names_in(warren.broker.queue_api)
    assert "warren.queues.backing_queue.BackingQueue" in of_queue
    assert not [name for name in of_queue if "threads" in name or "supervisor" in name or "virtual_host" in name]
    assert "warren.queues.backing_queue.BackingQueue" not in of_traffic
    assert "warren.broker.queue.BrokerQueue" in of_traffic
    assert not hasattr(stage.queue("orders").serving(), "lock")


def test_consumers_are_a_module_of_their_own(stage: BrokerStage) -> None:
    """QP-09: any object that implements the protocol can wait; the queue knows nothing else about it."""
    orders, waiter = stage.queue("orders"), Waiter()
    stage.queue_api.wait(orders, waiter)
    stage.put(b"1", to="orders")
    assert waiter.handed == [[b"1"]]
    line = orders.serving().getters
    assert type(line).__module__ == "warren.broker.consumers"
    assert list(line) == []


def test_a_deleted_queue_is_gone_with_all_that_was_in_it(stage: BrokerStage) -> None:
    orders, waiter = stage.queue("orders"), Waiter(5)
    stage.put(b"1", b"2", to="orders")
    taken = stage.take("orders")
    assert stage.vhost.delete_queue(orders) == 2
    with pytest.raises(UnknownQueue):
        stage.vhost.find_queue("orders")
    with pytest.raises(QueueDeleted):
        stage.queue_api.ack(orders, settling(taken))
    with pytest.raises(QueueDeleted):
        stage.queue_api.wait(orders, waiter)
    with pytest.raises(QueueDeleted):
        stage.vhost.delete_queue(orders)
    again = stage.queue("orders")
    assert (again.id != orders.id, stage.length("orders")) == (True, 0)
    stage.down()
    stage.up()
    assert stage.length("orders") == 0


def test_a_getter_that_waits_for_a_deleted_queue_gets_an_error(stage: BrokerStage) -> None:
    orders, waiter = stage.queue("orders"), Waiter()
    stage.queue_api.wait(orders, waiter)
    stage.vhost.delete_queue(orders)
    assert [type(error) for error in waiter.errors] == [QueueDeleted]


def test_after_a_clean_stop_nothing_that_was_not_delivered_is_flagged(stage: BrokerStage) -> None:
    stage.queue("orders")
    stage.put(b"1", b"2", b"3", to="orders")
    stage.take("orders")
    stage.down()
    stage.up()
    again = stage.take("orders", 3)
    assert bodies(again) == [b"1", b"2", b"3"]
    flags = [each.is_redelivered for each in again.fetched for _ in range(len(each.slice))]
    assert flags == [True, False, False]


def test_after_a_crash_confirmed_messages_are_there_and_flagged(stage: BrokerStage) -> None:
    orders = stage.queue("orders")
    stage.put(b"1", b"2", b"3", to="orders")
    stage.queue_api.ack(orders, settling(stage.take("orders")))
    stage.database.make_durable()
    other = _crashed(stage)
    again = other.take("orders", 3)
    assert bodies(again) == [b"2", b"3"]
    assert {each.is_redelivered for each in again.fetched} == {True}
    other.down()


def test_a_start_from_a_clean_stop_is_no_clean_stop_when_it_crashes(stage: BrokerStage) -> None:
    """Everything delivered before the crash is flagged, also right before it."""
    stage.queue("orders")
    stage.put(b"1", b"2", to="orders")
    stage.down()
    stage.up()
    stage.take("orders")
    other = _crashed(stage)
    assert {each.is_redelivered for each in other.take("orders", 2).fetched} == {True}
    other.down()


def test_a_dead_letter_move_that_was_not_durable_never_was(stage: BrokerStage) -> None:
    """One session: after a crash the message is in one queue or in the other, never in both or in none."""
    stage.queue("dead")
    stage.queue("work", max_length=1, dead_letter="dead")
    stage.put(b"1", to="work")
    publication_epoch = stage.vhost.find_queue("work").epoch
    assert publication_epoch <= stage.database.log.durable
    stage.queue_api.put(Publication([b"2"]), [stage.vhost.find_queue("work")])
    other = _crashed(stage)
    assert (other.get("work"), other.get("dead")) == ([b"1"], [])
    other.down()
    stage.database.make_durable()
    other = _crashed(stage)
    assert (other.get("work"), other.get("dead")) == ([b"2"], [b"1"])
    other.down()


def test_what_is_not_durable_is_gone_after_a_restart(stage: BrokerStage) -> None:
    stage.queue("kept")
    stage.queue("passing", durable=False)
    stage.put(b"1", to=["kept", "passing"])
    stage.put(b"2", to="kept", is_persistent=False)
    stage.down()
    stage.up()
    assert (stage.vhost.queue_names(), stage.get("kept")) == (["kept"], [b"1"])


def test_queues_with_time_start_with_the_vhost(stage: BrokerStage) -> None:
    stage.queue("dead")
    stage.queue("delay", message_ttl_ms=1000, dead_letter="dead")
    stage.put(b"1", to="delay")
    stage.down()
    stage.up()
    stage.vhost.begin()
    stage.pass_ms(1000)
    assert stage.get("dead") == [b"1"]


def test_many_threads_may_declare_and_delete(stage: BrokerStage) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                handle = stage.queue("shared")
                stage.vhost.delete_queue(handle)
        except Refused:
            work_again.append(1)
        except BaseException as error:
            errors.append(error)

    work_again: list[int] = []
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_closed_vhost_refuses_requests() -> None:
    stage = BrokerStage().up()
    orders, waiter = stage.queue("orders"), Waiter()
    stage.queue_api.wait(orders, waiter)
    stage.down()
    assert [type(error) for error in waiter.errors] == [QueuesClosed]
    for call in (
        lambda: stage.vhost.find_queue("other"),
        lambda: stage.queue_api.length(orders),
        stage.vhost.queue_names,
    ):
        with pytest.raises(QueuesClosed):
            call()


def _crashed(stage: BrokerStage) -> BrokerStage:
    """Another machine, with what is left of the disks after the power went."""
    other = BrokerStage()
    other.disk = stage.disk.crash(SYNCED, stage.rng)
    assert stage.store is not None
    other.store = stage.store.crash(stage.rng)
    other.place = stage.forgetful.crash(stage.rng)
    other.log_settings, other.reflection = stage.log_settings, stage.reflection
    return other.up()
