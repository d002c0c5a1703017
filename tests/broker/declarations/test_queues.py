"""Declaring and deleting queues, and automatic deletion."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.broker.declarations_cases import args, q, x
from tests.broker.declarations_stage import DeclarationsStage
from warren.amqp import methods
from warren.amqp.errors import PeerError, ReplyCode
from warren.broker.errors import UnknownQueue
from warren.broker.queue_handle import QueueHandle
from warren.broker.vhost import Client, Owner
from warren.catalog.queues import QueueRow
from warren.catalog.rows import RowWriter
from warren.testing.memory_files import SYNCED


@pytest.fixture
def stage() -> Iterator[DeclarationsStage]:
    stage = DeclarationsStage().up()
    yield stage
    stage.check()
    stage.down()


def declared(stage: DeclarationsStage, method: methods.QueueDeclare, client_name: str = "a") -> methods.QueueDeclareOk:
    answer = stage.request(method, client_name)
    assert isinstance(answer, methods.QueueDeclareOk)
    return answer


def routed(stage: DeclarationsStage, name: str) -> bool:
    """Whether a message to this queue would be routed."""
    default = stage.vhost.routing.exchange("")
    assert default is not None
    return bool(stage.vhost.routing.publish(default.id, name).queues)


def test_the_server_generates_names_that_cannot_be_guessed(stage: DeclarationsStage) -> None:
    """QP-06: server-named queues."""
    names = {declared(stage, q("", exclusive=True)).queue for _ in range(20)}
    assert len(names) == 20
    assert all(len(name) == len("amq.gen-") + 22 for name in names)
    assert stage.client().last_queue in names
    assert stage.request(methods.QueuePurge()) == methods.QueuePurgeOk(0)


def test_counts_are_of_what_is_ready(stage: DeclarationsStage) -> None:
    stage.request(q())
    stage.put(b"1", b"2", b"3", to="q")
    taken = stage.take("q")
    assert declared(stage, q()).message_count == 2
    assert declared(stage, q(passive=True)).message_count == 2
    assert stage.request(methods.QueuePurge(queue="q")) == methods.QueuePurgeOk(2)
    stage.put(b"4", to="q")
    assert stage.request(methods.QueueDelete(queue="q")) == methods.QueueDeleteOk(1)
    assert taken.queue not in stage.ids().values()


def test_a_purge_is_durable_when_it_is_answered(stage: DeclarationsStage) -> None:
    stage.request(q(durable=True))
    stage.put(b"1", b"2", to="q")
    stage.request(methods.QueuePurge(queue="q"))
    other = _crashed(stage)
    assert other.get("q") == []
    other.down()


def test_what_was_answered_is_there_after_a_crash(stage: DeclarationsStage) -> None:
    """QP-06: durable queues, exchanges and bindings outlive the process; others and exclusive ones do not."""
    for method in (
        q("kept", durable=True),
        q("passing"),
        q("mine", exclusive=True, durable=True),
        x("e", durable=True),
        x("x"),
        methods.QueueBind(queue="kept", exchange="e", routing_key="k"),
        methods.QueueBind(queue="kept", exchange="x", routing_key="k"),
        q("gone", durable=True),
        methods.QueueDelete(queue="gone"),
    ):
        stage.request(method)
    other = _crashed(stage)
    assert list(other.ids()) == ["kept"]
    exchange = other.vhost.routing.exchange("e")
    assert exchange is not None
    assert other.vhost.routing.publish(exchange.id, "k").queues == (other.ids()["kept"],)
    assert other.vhost.routing.exchange("x") is None
    other.down()


def test_exclusive_queues_go_with_their_connection(stage: DeclarationsStage) -> None:
    """QP-06: exclusive."""
    stage.request(x(auto_delete=True))
    for name in ("q1", "q2"):
        stage.request(q(name, exclusive=True))
        stage.request(methods.QueueBind(queue=name, exchange="e"))
    stage.request(q("other", exclusive=True), "b")
    stage.declarations.release(stage.client().owner)
    assert list(stage.ids()) == ["other"]
    assert stage.vhost.routing.exchange("e") is None, "it has gone with its last binding"
    assert not stage.client().owner.exclusive
    assert (stage.counts.queues_created, stage.counts.queues_deleted) == (3, 2)
    stage.request(q("q1", exclusive=True), "b")


def test_what_a_connection_declares_after_it_has_gone_goes_at_once(stage: DeclarationsStage) -> None:
    stage.declarations.release(stage.client().owner)
    stage.request(q(exclusive=True))
    assert stage.ids() == {}
    assert stage.vhost.owners == {}


def test_no_other_connection_uses_an_exclusive_queue(stage: DeclarationsStage) -> None:
    stage.request(q(exclusive=True))
    handle = stage.vhost.find_queue("q")
    stage.declarations.check_owner(stage.client(), handle)
    with pytest.raises(PeerError, match="locked queue 'q'") as refusal:
        stage.declarations.check_owner(stage.client("b"), handle)
    assert refusal.value.code is ReplyCode.RESOURCE_LOCKED


def test_an_auto_delete_queue_goes_with_its_last_consumer(stage: DeclarationsStage) -> None:
    """QP-06: auto-delete."""
    stage.request(q(auto_delete=True))
    stage.request(q("stays"))
    first, second = stage.consume("q"), stage.consume("q")
    stage.leave(*first)
    assert routed(stage, "q"), "there is another one"
    stage.leave(*second)
    stage.leave(*stage.consume("stays"))
    assert list(stage.ids()) == ["stays"]
    assert not routed(stage, "q")
    stage.declarations.consumer_removed(second[0].id)


def test_an_expired_queue_leaves_nothing_behind(stage: DeclarationsStage) -> None:
    """QP-06: expiring queues, with what is bound to them."""
    stage.request(x(auto_delete=True))
    stage.request(q(exclusive=True, **args(x_expires=1000)))
    stage.request(methods.QueueBind(queue="q", exchange="e"))
    stage.pass_ms(999)
    stage.request(q(passive=True))
    stage.pass_ms(999)
    assert routed(stage, "q"), "a passive declaration counts as use"
    stage.pass_ms(1)
    assert not routed(stage, "q")
    assert (stage.ids(), stage.vhost.owners, stage.vhost.routing.exchange("e")) == ({}, {}, None)
    assert stage.counts.queues_deleted == 1
    assert declared(stage, q(), "b").queue == "q"


def test_what_was_refused_is_not_there(stage: DeclarationsStage) -> None:
    with pytest.raises(PeerError):
        stage.request(q(exclusive=True, **args(x_message_ttl=-1)))
    with pytest.raises(PeerError, match="unknown kind of backing queue 'none'"):
        stage.request(q(exclusive=True, **args(x_backing="none")))
    assert (stage.ids(), stage.client().owner.exclusive, stage.client().last_queue) == ({}, set(), "")
    assert (stage.counts.queues_declared, stage.counts.queues_created) == (2, 0)


def test_a_declaration_that_fails_on_its_way_to_the_log_leaves_no_owner(
    stage: DeclarationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(writer: RowWriter) -> None:
        raise OSError("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(stage.storage.catalog, "_append", failing)
        with pytest.raises(OSError, match="the disk"):
            stage.request(q(exclusive=True))
    assert (stage.ids(), stage.vhost.owners, stage.client().owner.exclusive) == ({}, {}, set())
    stage.request(q(exclusive=True), "b")


def test_a_new_queue_is_served_before_it_is_routed_to(stage: DeclarationsStage) -> None:
    """A queue that is in the routing is started."""
    served: list[bool] = []
    routing = stage.vhost.routing

    class Watching:
        def __getattr__(self, name: str) -> object:
            if name == "add_queue":
                served.append("q" in [handle.name for handle in stage.vhost.handles()])
            return getattr(routing, name)

    stage.vhost.routing = Watching()  # type: ignore[assignment]
    stage.request(q())
    stage.vhost.routing = routing
    assert served == [True]


def test_a_queue_may_be_deleted_before_its_declaration_has_been_answered(
    stage: DeclarationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion waits for the end of the declaration; the declaration must not wait for the deletion."""
    start, is_in, may_continue = stage.vhost.start_queue, threading.Event(), threading.Event()

    def delayed_start(row: QueueRow, is_patient: bool = True, is_new: bool = False) -> QueueHandle:
        if not is_in.is_set():
            is_in.set()
            assert may_continue.wait(30)
        return start(row, is_patient, is_new)

    def delete() -> None:
        assert is_in.wait(30)
        stage.request(methods.QueueDelete(queue="q"), "b")

    def release() -> None:
        while not is_in.is_set() or not any(handle.is_deleted for handle in stage.vhost.handles()):
            time.sleep(0.001)
        may_continue.set()

    monkeypatch.setattr(stage.vhost, "start_queue", delayed_start)
    _together([lambda: _requests(stage, q()), delete, release])
    assert (stage.counts.queues_created, stage.counts.queues_deleted) == (1, 1)
    assert stage.ids() == {}


def test_threads_declare_and_delete_one_name(stage: DeclarationsStage) -> None:
    """Every request is answered, and in the end memory and catalog agree."""

    def work(number: int) -> None:
        client = Client(stage.client().access, Owner(f"thread {number}"))
        for batch in range(8):
            stage.declarations.answer(client, q("shared"))
            stage.declarations.answer(client, q(f"own {number}", exclusive=True))
            bind = methods.QueueBind(queue="shared", exchange="amq.fanout")
            _answered(partial(stage.declarations.answer, client, bind), ReplyCode.NOT_FOUND)
            if batch % 2 == number % 2:
                stage.declarations.answer(client, methods.QueueDelete(queue="shared"))
            purge = methods.QueuePurge(queue="shared")
            _answered(partial(stage.declarations.answer, client, purge), ReplyCode.NOT_FOUND)
        stage.declarations.release(client.owner)

    _together([partial(work, number) for number in range(4)])
    stage.check()
    assert set(stage.ids()) <= {"shared"}
    assert stage.counts.queues_created - stage.counts.queues_deleted == len(stage.ids())


def test_one_of_many_exclusive_declares_succeeds(stage: DeclarationsStage) -> None:
    received: list[int] = []

    def work(number: int) -> None:
        client = Client(stage.client().access, Owner(f"thread {number}"))
        if _answered(lambda: stage.declarations.answer(client, q("one", exclusive=True)), ReplyCode.RESOURCE_LOCKED):
            received.append(number)

    _together([partial(work, number) for number in range(6)])
    assert len(received) == 1


def test_a_queue_that_expires_while_it_is_declared_is_recreated_or_stays(stage: DeclarationsStage) -> None:
    for _ in range(5):
        stage.request(q(**args(x_expires=10)))
        jobs: list[Callable[[], None]] = [lambda: stage.pass_ms(10), lambda: _requests(stage, q(**args(x_expires=10)))]
        _together(jobs)
        stage.check()
        stage.pass_ms(30)
        assert stage.ids() == {}
        with pytest.raises(UnknownQueue):
            stage.vhost.find_queue("q")


def _requests(stage: DeclarationsStage, method: methods.QueueDeclare) -> None:
    assert stage.request(method) is not None


def _answered(request: Callable[[], object], may_be: ReplyCode) -> bool:
    """Or refused, because another client was quicker."""
    try:
        request()
    except PeerError as error:
        if error.code is not may_be:
            raise
        return False
    return True


def _together(jobs: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not errors
    assert not [thread for thread in threads if thread.is_alive()], "a thread waits for ever"


def _crashed(stage: DeclarationsStage) -> DeclarationsStage:
    """Another machine, with what is left of the disks after the power went."""
    other = DeclarationsStage()
    other.disk = stage.disk.crash(SYNCED, stage.rng)
    assert stage.store is not None
    other.store = stage.store.crash(stage.rng)
    other.place = stage.forgetful.crash(stage.rng)
    other.log_settings, other.reflection = stage.log_settings, stage.reflection
    return other.up()
