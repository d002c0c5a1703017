"""How the seeded faults of turns, confirms and topology are done: from the real function to the wrong one."""

from __future__ import annotations

from typing import Any

from tests.mutants.wrongs import Function
from warren.broker.queue_arguments import is_over
from warren.broker.request_batch import PublishGroup, Route, Settlement


def confirmed_before_durable(real: Function) -> Function:
    def wait_for(loop: Any, done: Any, confirming: Any) -> None:
        for channel, _, last in confirming:
            channel.confirm(last)
        real(loop, done, [])

    return wait_for


def earlier_epochs_forgotten(real: Function) -> Function:
    def wait_for(loop: Any, done: Any, confirming: Any) -> None:
        batches, loop._waiting_batches = loop._waiting_batches, 0
        try:
            real(loop, done, confirming)
        finally:
            loop._waiting_batches += batches

    return wait_for


def newest_tag_confirmed(real: Function) -> Function:
    def confirm(loop: Any, confirming: Any) -> None:
        for channel, _, _ in confirming:
            channel.confirm(channel.published)

    return confirm


def nack_left_out(real: Function) -> Function:
    return lambda channel, tag, count: None


def joined_the_first_group(real: Function) -> Function:
    def publish(batch: Any, publisher: Any, *others: Any, **named: Any) -> None:
        batch._last.pop(publisher, None)
        real(batch, publisher, *others, **named)

    return publish


def only_the_first_range_settled(real: Function) -> Function:
    def settle(batch: Any, handle: Any, asked: list[Any], work: Any) -> None:
        real(
            batch,
            handle,
            [
                (settlement, incarnation, tags[:1] if settlement is Settlement.ACK else tags)
                for settlement, incarnation, tags in asked
            ],
            work,
        )

    return settle


def others_in_the_next_turn(real: Function) -> Function:
    def put(batch: Any, group: Any, work: Any) -> None:
        first, others = group.route.handles[:1], group.route.handles[1:]
        if others:
            later = Route(others, group.route.origin, group.route.version, group.route.needs_headers)
            rest = PublishGroup(later, group.is_persistent, group.priority, group.expires_ms, len(batch._groups))
            rest.contents = group.contents
            batch._groups.append(rest)
            batch.schedule_delivery(others[0])
            group.route = Route(first, later.origin, later.version, later.needs_headers)
        real(batch, group, work)

    return put


def auto_ack_left_out(real: Function) -> Function:
    return lambda queue, work, count, bytes_max, is_auto_ack: real(queue, work, count, bytes_max, False)


def got_without_its_ack(real: Function) -> Function:
    return lambda batch, handle, is_auto_ack, work: real(batch, handle, False, work)


def unacked_left_behind(real: Function) -> Function:
    def recover(channel: Any) -> None:
        if channel.is_open:
            real(channel)

    return recover


def answered_before_durable(real: Function) -> Function:
    return lambda catalog, epoch: None


def routed_with_the_next_change(real: Function) -> Function:
    def apply(catalog: Any, change: Any, order: Any) -> None:
        overdue = getattr(catalog, "overdue", [])
        for update in overdue:
            update()
        update_routing, change.update_routing = change.update_routing, lambda: None
        real(catalog, change, order)
        catalog.overdue = [lambda: _with_lock(order, update_routing)]

    return apply


def _with_lock(order: Any, update_routing: Any) -> None:
    with order._lock:
        update_routing()


def given_back_is_dropped(real: Function) -> Function:
    return lambda queue: is_over(queue.arguments, len(queue.backing), queue.backing.ready_bytes)


def settled_a_turn_late(real: Function) -> Function:
    def end(batch: Any) -> Any:
        settled, batch._settled = batch._settled, getattr(batch, "overdue", {})
        batch.overdue = settled
        return real(batch)

    return end


def turn_left_open(real: Function) -> Function:
    """A change overtakes earlier requests of its client: the batch is not run, as the connection seems to be closed."""

    def offload(connection: Any, *arguments: Any, **named: Any) -> None:
        access, connection.access = connection.access, None
        try:
            real(connection, *arguments, **named)
        finally:
            connection.access = access

    return offload
