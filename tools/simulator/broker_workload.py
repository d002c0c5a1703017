"""Clients at work on the simulated broker, by a seed.

    founder    declares what all use: exchanges, queues, bindings; the others come when it is done
    producers  publish to one queue, to several, to a queue that is full, to nobody; some wait for confirms, some do not
    workers    consume and get; acknowledge, reject, requeue one or many; cancel, close, hang up, come again
    clerk      declares queues and exchanges, binds, publishes, unbinds, deletes: all its own, but others publish there
    operator   seals files, and clears away what nobody wants
    auditor    cuts everybody off at the end, and compares what is ready then with the ledger

Two lives, the first ended by a stop that cuts clients off. What they know is in the ledger.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from tools.simulator.broker_client import BrokerClient
from tools.simulator.broker_judge import Inspector, judge
from tools.simulator.broker_ledger import ExpectedMessages, Fate, PlainQueue
from tools.simulator.broker_machine import Begin, BrokerLife
from tools.simulator.broker_machine import Part as Act
from warren.amqp import methods

SIZES = (20, 60, 90, 150, 400, 1300)  # from 100 on they go to the message store
ROUTES = (("events", ""), ("events", ""), ("orders", "work"), ("orders", "all"), ("orders", "short"), ("", "a"))
FLEETING = ("v0", "v1")


class BrokerWorkload:
    """Two lives of one broker, and what all clients of it know."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.ledger = ExpectedMessages()
        self.ledger.fleeting = set(FLEETING)
        self.clients: list[BrokerClient] = []  # that are connected
        self.done: Counter[str] = Counter()

    def body(self, begin: Begin) -> None:
        for number in range(2):
            incarnation = begin()
            self.ledger.restarted()
            self.clients.clear()
            rng = random.Random(f"{self._seed} {number}")
            parts: list[Act] = [Producer(self, "p", rng), Producer(self, "q", rng)]
            parts += [
                WorkerClient(self, "w", rng),
                WorkerClient(self, "x", rng),
                DeclaringClient(self, "c", rng),
            ]
            parts.append(ManagementClient(self, "o", rng))
            acts: list[list[Act]] = [[SetupClient(self, "f", rng)], parts]
            incarnation.serve(acts if number == 0 else [*acts, [Auditor(self, "i", rng)]], stops=number == 0)


class ClientScript:
    """What one client does. Called in a thread of its own."""

    owns = False
    tries = 8  # in each life

    def __init__(self, workload: BrokerWorkload, name: str, rng: random.Random) -> None:
        self.workload = workload
        self.ledger = workload.ledger
        self.name = name
        self.rng = random.Random(f"{name} {rng.random()}")

    def __call__(self, incarnation: BrokerLife) -> None:
        self.incarnation = incarnation
        self.client = BrokerClient(incarnation, self.name, self.ledger, self.rng, self.owns)
        self.workload.clients.append(self.client)
        self.client.open()
        self.work()

    def work(self) -> None:
        for _ in range(self.tries):
            doing = self.rng.choice(self.doings())
            if doing():
                self.workload.done[f"{type(self).__name__.lower()}: {doing.__name__}"] += 1

    def doings(self) -> list[Callable[[], bool]]:
        """What it chooses from; nothing for one whose work is always the same."""
        return []

    # -- changes of the topology ---------------------------------------------------------------------------------

    def declare_queue(self, queue: PlainQueue, **arguments: object) -> None:
        known = self.ledger.declaring_queue(queue)
        more = dict(arguments)
        if queue.dead_letters_to:
            more |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue.dead_letters_to}

        def there() -> None:
            known.fate = Fate.THERE

        asked = methods.QueueDeclare(0, queue.name, durable=queue.is_durable, arguments=more)
        self.client.change(asked, methods.QueueDeclareOk, there)

    def delete_queue(self, name: str) -> None:
        self.ledger.queues[name].fate = Fate.GOING
        asked = methods.QueueDelete(0, name)
        self.client.change(asked, methods.QueueDeleteOk, lambda: self.ledger.queue_deleted(name))

    def declare_exchange(self, name: str, type_: str) -> None:
        known = self.ledger.exchanges
        known.setdefault(name, (type_, Fate.COMING))
        if known[name][1] is Fate.ABSENT:
            known[name] = type_, Fate.COMING

        def there() -> None:
            known[name] = type_, Fate.THERE

        asked = methods.ExchangeDeclare(0, name, type_, durable=True)
        self.client.change(asked, methods.ExchangeDeclareOk, there)

    def delete_exchange(self, name: str) -> None:
        self.ledger.exchanges[name] = self.ledger.exchanges[name][0], Fate.GOING
        asked = methods.ExchangeDelete(0, name)
        self.client.change(asked, methods.ExchangeDeleteOk, lambda: self.ledger.exchange_deleted(name))

    def bind(self, exchange: str, key: str, queue: str) -> None:
        self._rebind((exchange, key, queue), Fate.COMING, Fate.THERE)

    def unbind(self, exchange: str, key: str, queue: str) -> None:
        self._rebind((exchange, key, queue), Fate.GOING, Fate.ABSENT)

    def _rebind(self, binding: tuple[str, str, str], meanwhile: Fate, then: Fate) -> None:
        exchange, key, queue = binding
        if self.ledger.bindings.get(binding) is not then:
            self.ledger.bindings[binding] = meanwhile

        def done() -> None:
            self.ledger.bindings[binding] = then

        if then is Fate.THERE:
            self.client.change(methods.QueueBind(0, queue, exchange, key), methods.QueueBindOk, done)
        else:
            self.client.change(methods.QueueUnbind(0, queue, exchange, key), methods.QueueUnbindOk, done)


class SetupClient(ClientScript):
    def work(self) -> None:
        self.declare_exchange("events", "fanout")
        self.declare_exchange("orders", "direct")
        self.declare_queue(PlainQueue("a"))
        self.declare_queue(PlainQueue("b"))
        self.declare_queue(PlainQueue("dead"))
        self.declare_queue(PlainQueue("news", is_auto_acked=True))
        self.declare_queue(PlainQueue("work", dead_letters_to="dead"))
        self.declare_queue(PlainQueue("free", is_durable=False))
        self.declare_queue(PlainQueue("short"), **{"x-max-length": 3, "x-overflow": "reject-publish"})
        for queue in ("a", "b", "news"):
            self.bind("events", "", queue)
        for key, queue in (("work", "work"), ("all", "work"), ("all", "short"), ("all", "a"), ("short", "short")):
            self.bind("orders", key, queue)
        self.bind("orders", "all", "free")


class Producer(ClientScript):
    def doings(self) -> list[Callable[[], bool]]:
        return [self.publish, self.publish, self.publish, self.wait, self.publish_to_nobody]

    def publish(self) -> bool:
        for _ in range(self.rng.randrange(1, 5)):
            exchange, key = self.rng.choice(ROUTES)
            self.client.publish(exchange, key, self.rng.choice(SIZES), self.rng.random() < 0.85)
        return True

    def wait(self) -> bool:
        was_waiting = bool(self.client.waiting)
        self.client.wait_for_confirms()
        return was_waiting

    def publish_to_nobody(self) -> bool:
        """It comes back, and then it is confirmed."""
        sent = self.client.publish("orders", "nowhere", 30, mandatory=True)
        self.client.wait_for_confirms()
        assert sent.body in self.client.returned, f"{sent} was not returned before it was confirmed"
        return True


class WorkerClient(ClientScript):
    tries = 14

    def doings(self) -> list[Callable[[], bool]]:
        often = [self.consume, self.settle, self.settle, self.settle, self.settle, self.get]
        return [*often, *often, self.settle, self.cancel, self.recover, self.close, self.hang_up]

    def work(self) -> None:
        self.consume()
        super().work()

    def consume(self) -> bool:
        queue = self.rng.choice(["a", "b", "work", "work", "dead", "short", "news"])
        self.client.consume(queue, queue == "news", self.rng.choice([0, 1, 3]))
        return True

    def settle(self) -> bool:
        client = self.client
        if not client.listen(lambda: bool(client.held)):
            return False
        for _ in range(min(self.rng.randrange(1, 4), len(client.held))):
            settlement = self.rng.choice(["ack", "ack", "reject", "requeue"])
            if client.held:
                client.settle(settlement, self.rng.choice(client.held), self.rng.random() < 0.3)
        return self.rng.random() < 0.4 or self.mark()

    def get(self) -> bool:
        queue = self.rng.choice(["a", "b", "work", "dead", "short", "news"])
        return self.client.get(queue, queue == "news")

    def mark(self) -> bool:
        """What was settled before is durable when this is confirmed."""
        self.workload.done["workerclient: mark"] += 1
        self.client.publish("", self.rng.choice(["a", "b"]), 25)
        self.client.wait_for_confirms()
        return True

    def cancel(self) -> bool:
        if not self.client.consumers:
            return False
        self.client.cancel()
        return True

    def recover(self) -> bool:
        self.client.recover()
        return True

    def close(self) -> bool:
        self.client.close_channel()
        self.client.open_channel()
        return True

    def hang_up(self) -> bool:
        self.client.hang_up()
        return True


class DeclaringClient(ClientScript):
    owns = True

    def work(self) -> None:
        super().work()
        self.client.wait_for_confirms()

    def doings(self) -> list[Callable[[], bool]]:
        return [self.declare, self.join, self.join, self.leave, self.publish, self.publish, self.settle, self.delete]

    def _there(self) -> list[str]:
        known = self.ledger.queues
        return [name for name in FLEETING if name in known and known[name].fate is Fate.THERE]

    def declare(self) -> bool:
        if self.rng.random() < 0.5:
            self.declare_exchange("x", "direct")
        for name in FLEETING:
            self.declare_queue(PlainQueue(name))
        return True

    def join(self) -> bool:
        there = self._there()
        if not there:
            return False
        sources = ["events", "orders", *(["x"] if self._has_exchange() else [])]
        self.bind(self.rng.choice(sources), "own", self.rng.choice(there))
        return True

    def leave(self) -> bool:
        own = [binding for binding in self.ledger.there() if binding[2] in FLEETING]
        if not own:
            return False
        self.unbind(*self.rng.choice(own))
        return True

    def publish(self) -> bool:
        there = self._there()
        routes = [("events", ""), ("orders", "own"), *(("", name) for name in there)]
        routes += [("x", "own")] if self._has_exchange() else []
        for _ in range(self.rng.randrange(1, 4)):
            self.client.publish(*self.rng.choice(routes), self.rng.choice(SIZES))
        if self.rng.random() < 0.5:
            self.client.wait_for_confirms()
        return True

    def settle(self) -> bool:
        there = self._there()
        if not there or not self.client.get(self.rng.choice(there)):
            return False
        self.client.settle(self.rng.choice(["ack", "requeue"]), self.client.held[-1], False)
        return True

    def delete(self) -> bool:
        """Whatever of its own there is; messages that were in a queue are gone with it."""
        there = self._there()
        if self._has_exchange() and self.rng.random() < 0.5:
            self.delete_exchange("x")
        elif there:
            self.delete_queue(self.rng.choice(there))
        else:
            return False
        return True

    def _has_exchange(self) -> bool:
        return self.ledger.exchanges.get("x", ("", Fate.ABSENT))[1] is Fate.THERE


class ManagementClient(ClientScript):
    def __call__(self, incarnation: BrokerLife) -> None:
        self.incarnation = incarnation
        for _ in range(3):
            self.rng.choice([incarnation.seal, incarnation.tidy])()
            self.workload.done["operator"] += 1


class Auditor(ClientScript):
    """Whatever nobody has settled is ready again when everybody has gone, also what no restart would find."""

    def __call__(self, incarnation: BrokerLife) -> None:
        for client in self.workload.clients:
            client.leave()
        inspector = Inspector(incarnation)
        judge(self.ledger, inspector.look(self.ledger), is_live=True)
        inspector.leave()
