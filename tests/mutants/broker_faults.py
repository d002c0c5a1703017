"""Seeded faults of turns, confirms and topology: what a tired engineer might do to the broker. AMQP clients in the
simulator must find each (`tools.simulator.broker.simulator`). Named in docs/failure_model.md."""

from __future__ import annotations

from tests.mutants.broker_wrongs import (
    answered_before_durable,
    auto_ack_left_out,
    confirmed_before_durable,
    given_back_is_dropped,
    got_without_its_ack,
    joined_the_first_group,
    nack_left_out,
    newest_tag_confirmed,
    only_the_first_range_settled,
    others_in_the_next_turn,
    routed_with_the_next_change,
    settled_a_turn_late,
    unacked_left_behind,
)
from tests.mutants.faults import Fault, Patch
from tools.simulator.broker.simulator import BROKER

BROKER_FAULTS: tuple[Fault, ...] = (
    Fault(
        "confirmed-before-durable", "a publish is confirmed when its turn is done", (BROKER,),
        (Patch("warren.server.vhost_loop:VhostLoop._wait_for", confirmed_before_durable),),
        known=("broker:1/204/synced/198544",),
    ),
    Fault(
        "newest-tag-confirmed", "a confirm names the last tag there is, not the last that is durable", (BROKER,),
        (Patch("warren.server.vhost_loop:VhostLoop._confirm", newest_tag_confirmed),),
        known=("broker:17/252/synced/167105",),
    ),
    Fault(
        "nack-left-out", "what a full queue refused is confirmed with the others", (BROKER,),
        (Patch("warren.server.channel:ServerChannel.refused", nack_left_out),),
        known=("broker:2/1000000/synced/94473",),
    ),
    Fault(
        "joined-the-first-group", "a message joins the first group that suits, before others of its client", (BROKER,),
        (Patch("warren.broker.request_batch:RequestBatch.publish", joined_the_first_group),),
        known=("broker:2/1000000/synced/94473",),
    ),
    Fault(
        "first-range-settled", "of what was acknowledged in one turn only the first range is written", (BROKER,),
        (Patch("warren.broker.request_batch:RequestBatch._settle", only_the_first_range_settled),),
        known=("broker:1/1000000/synced/174602",),
    ),
    Fault(
        "settled-a-turn-late", "acknowledgements are done in the turn after the one that they came in", (BROKER,),
        (Patch("warren.broker.request_batch:RequestBatch.execute", settled_a_turn_late),),
        known=("broker:4/1000000/synced/149756",),
    ),
    Fault(
        "fan-out-in-two-turns", "a message goes to its first queue in this turn, to the others in the next", (BROKER,),
        (Patch("warren.broker.request_batch:RequestBatch._put", others_in_the_next_turn),),
        known=("broker:2/1000000/synced/94473",),
    ),
    Fault(
        "auto-ack-left-out", "what is handed out to be acknowledged at once is only handed out", (BROKER,),
        (Patch("warren.broker.queue:BrokerQueue._fetch_for_consumer", auto_ack_left_out),),
        known=("broker:6/1000000/synced/152595",),
    ),
    Fault(
        "got-without-its-ack", "the same for a single message that was got", (BROKER,),
        (Patch("warren.broker.request_batch:RequestBatch._got", got_without_its_ack),),
        known=("broker:3/1000000/synced/199091",),
    ),
    Fault(
        "unacked-left-behind", "a channel closes, and its unsettled messages are lost", (BROKER,),
        (Patch("warren.server.channel:ServerChannel.recover", unacked_left_behind),),
        known=("broker:2/1000000/synced/94473",),
    ),
    Fault(
        "answered-before-durable", "declare, bind and delete are answered before they are on the disk", (BROKER,),
        (Patch("warren.catalog.catalog:Catalog.settle", answered_before_durable),),
        known=("broker:1/305/synced/154986",),
    ),
    Fault(
        "routed-with-the-next-change", "a change is answered before the routing knows of it", (BROKER,),
        (Patch("warren.catalog.catalog:Catalog.apply", routed_with_the_next_change),),
        known=("broker:2/345/synced/30550", "broker:2/534/synced/32061"),
    ),
    Fault(
        "given-back-is-dropped", "a queue that refuses drops its oldest when messages are given back", (BROKER,),
        (Patch("warren.broker.queue:BrokerQueue.is_over", given_back_is_dropped),),
        known=("broker:4/1000000/synced/149756",),
    ),
)  # fmt: skip
