"""The order of request batches, confirms and changes, over the simulator's loop, with a disk delay set by a test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from tests.mutants.broker_wrongs import confirmed_before_durable, earlier_epochs_forgotten, turn_left_open
from tests.mutants.faults import Patch
from tools.simulator.broker.client import BrokerClient
from tools.simulator.broker.environment import Begin, BrokerEnvironment, SimulatedBroker
from tools.simulator.broker.expected_messages import ExpectedMessages, Fate, PlainQueue
from warren.amqp import frames, methods
from warren.amqp.content import PERSISTENT, Properties, write_content
from warren.base.ids import Epoch
from warren.base.messages import WIRE, Origin, Publication

WAIT_FOR = "warren.server.vhost_loop:VhostLoop._wait_for"


def result_of(scenario: Callable[[SimulatedBroker, BrokerClient], object], seed: int = 1) -> object:
    """What a client saw that has declared a queue."""
    results: list[object] = []

    def part(incarnation: SimulatedBroker) -> None:
        client = BrokerClient(incarnation, "p", ExpectedMessages(), random.Random(1))
        client.open()
        client.call(methods.QueueDeclare(0, "a", durable=True), methods.QueueDeclareOk)
        results.append(scenario(incarnation, client))

    def body(begin: Begin) -> None:
        begin().serve([[part]], stops=False)

    BrokerEnvironment().play(seed, body)
    return results[0]


@contextmanager
def slow_disk(incarnation: SimulatedBroker) -> Iterator[None]:
    """No callback reports an epoch as durable before the `with` ends."""
    gate, real = incarnation.threads.condition(), incarnation.confirms._wait
    is_slow = [True]

    def wait(epoch: Epoch) -> None:
        with gate:
            while is_slow[0]:
                gate.wait()
        real(epoch)

    incarnation.confirms._wait = wait
    yield
    with gate:
        is_slow[0] = False
        gate.notify_all()


def batch_is_done(client: BrokerClient) -> None:
    for _ in range(3):
        client.call(methods.BasicQos(), methods.BasicQosOk)


def confirmed_on_a_slow_disk(incarnation: SimulatedBroker, client: BrokerClient) -> list[int]:
    """A message for a queue, then an unroutable one: which tags are open while the first is not durable."""
    with slow_disk(incarnation):
        client.publish("", "a", 20)
        batch_is_done(client)
        client.publish("", "unbound", 20)
        batch_is_done(client)
        waiting = list(client.waiting)
    client.wait_for_confirms()
    return waiting


def purged_behind_a_publish(incarnation: SimulatedBroker, client: BrokerClient) -> int:
    """Both in one packet: how many messages the purge has found."""
    publish = frames.method_frame(1, methods.BasicPublish(0, "", "a"))
    sent = client.expected.publish("p", "", "a", 20, True, False)
    client.waiting[1] = sent, 0
    content = write_content(Properties(delivery_mode=PERSISTENT), sent.body, 1, 4096)
    client._wire.send(publish + content + frames.method_frame(1, methods.QueuePurge(0, "a")))
    return client._expect(methods.QueuePurgeOk).message_count


def seeded(patch: Patch | None) -> AbstractContextManager[None]:
    return nullcontext() if patch is None else patch.applied()


@pytest.mark.parametrize(
    ("patch", "waiting"),
    [
        (None, [1, 2]),
        (Patch(WAIT_FOR, confirmed_before_durable), []),
        (Patch(WAIT_FOR, earlier_epochs_forgotten), []),
    ],
)
def test_an_unroutable_message_is_confirmed_when_those_before_it_are_durable(
    patch: Patch | None, waiting: list[int]
) -> None:
    """X-01: one confirm covers all before it. The two other variants are wrong, and show that the test detects it."""
    with seeded(patch):
        assert result_of(confirmed_on_a_slow_disk) == waiting


def test_requests_of_a_client_before_a_change_are_executed_before_it() -> None:
    """In every interleaving; the wrong order fails in some."""
    assert {result_of(purged_behind_a_publish, seed) for seed in range(8)} == {1}
    with Patch("warren.server.connection:ServerConnection.offload", turn_left_open).applied():
        assert 0 in {result_of(purged_behind_a_publish, seed) for seed in range(8)}


def delivered_around_a_broken_one(incarnation: SimulatedBroker, client: BrokerClient) -> tuple[list[int], int]:
    """Four messages, one of which cannot be read: the tags that the channel holds, and how many the queue waits for."""
    vhost = incarnation.vhosts.find("/")
    client.expected.declaring_queue(PlainQueue("a")).fate = Fate.THERE
    client.publish("", "a", 20)
    client.wait_for_confirms()
    more = [client.expected.publish("p", "", "a", 20, True, False).body for _ in range(2)]
    good = [write_content(Properties(delivery_mode=PERSISTENT), body, 1, 4096) for body in more]
    broken = Publication([good[0], b"no frames", good[1]], origin=Origin("", "a", "", WIRE))
    vhost.queue_api.put(broken, [vhost.find_queue("a")])
    client.consume("a")
    client.wait_until(lambda: len(client.unacked) == 3, "three are delivered")
    batch_is_done(client)
    [connection] = incarnation.server.connections
    queue = vhost.find_queue("a").serving()
    return [piece.first for piece in connection.channels[1].unacked.pieces()], queue.backing.pending_count


def test_a_message_that_cannot_be_read_takes_no_other_with_it() -> None:
    assert result_of(delivered_around_a_broken_one) == ([1, 2, 3], 3)
