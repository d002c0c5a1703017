"""The rows that docs/formats/queue_index.md shows, made by the product, with what each field says."""

from __future__ import annotations

import numpy as np

from warren.base.ids import QueueId, SequenceId
from warren.base.messages import WIRE, Origin, QueuePlace, Run
from warren.queue_index.history_format import DequeueReason, HistoryRecord, encode_events, history_key
from warren.queue_index.row_format import (
    Counters,
    ack_key,
    counters_key,
    delivery_key,
    encode_counters,
    encode_gone,
    encode_requeues,
    encode_run,
    run_key,
)

PLACE = QueuePlace(QueueId(0x0102), 3)
ORIGIN = Origin("shop", "new", "ann", WIRE)
RUN = Run(SequenceId(258), 3, np.array([3, 1, 3], dtype=np.uint32), expires_ms=0x201, published_ms=0x101, origin=ORIGIN)
CONTENTS = [b"ant", b"b", b"cat"]
ELSEWHERE = Run(SequenceId(258), 2, 5000, stored=b"\x01unit")
GONE = 0b1010_0000_0111
COUNTERS = Counters(SequenceId(300), SequenceId(258), 30, 5000, SequenceId(260), is_clean=True)

KEY = ((1, "key: a run"), (1, "level 3"), (8, "first sequence id 258, big-endian"))
HEAD = (1, "value: format 1")
NO_EXTENSION = (2, "no extension")

ROWS: tuple[tuple[str, bytes, tuple[tuple[int, str], ...]], ...] = (
    (
        "run row: three messages of different sizes, embedded",
        run_key(3, 258) + encode_run(RUN, CONTENTS),
        (
            *KEY,
            (1, "run row"),
            HEAD,
            (1, "flags: sizes differ"),
            NO_EXTENSION,
            (4, "count 3"),
            (8, "expires, wall ms"),
            (8, "published, wall ms"),
            (4, "size: see the column"),
            (6, "4, 3 and 3 bytes of names"),
            (2, "content kind 1: as on the wire; 0"),
            (4, "exchange: shop"),
            (3, "routing key: new"),
            (3, "user: ann"),
            (12, "sizes 3, 1, 3"),
            (3, "ant"),
            (1, "b"),
            (3, "cat"),
        ),
    ),
    (
        "run row: two messages of 5000 bytes, which are in the message store; origin unknown",
        run_key(3, 258) + encode_run(ELSEWHERE, None),
        (
            *KEY,
            (1, "run row"),
            HEAD,
            (1, "flags: stored"),
            NO_EXTENSION,
            (4, "count 2"),
            (8, "never expires"),
            (8, "published: not known"),
            (4, "size 5000, each"),
            (6, "no names"),
            (2, "content kind 0: body only; 0"),
            (5, "place in the message store"),
        ),
    ),
    (
        "ack row: of that run's messages 0, 1, 2, 9 and 11 are gone",
        ack_key(3, 258) + encode_gone(GONE),
        (
            *KEY,
            (1, "ack row"),
            HEAD,
            (1, "flags"),
            NO_EXTENSION,
            (4, "the first 3 are gone"),
            (2, "bits 6 and 8: messages 9 and 11"),
        ),
    ),
    (
        "counters row, written at a clean stop",
        counters_key(3) + encode_counters(COUNTERS),
        (
            (1, "key: counters"),
            (1, "level 3"),
            HEAD,
            (1, "flags: clean"),
            NO_EXTENSION,
            (8, "next 300"),
            (8, "head 258"),
            (8, "count 30"),
            (8, "size bytes 5000"),
            (8, "delivered to 260"),
        ),
    ),
    (
        "delivery row: message 259 was requeued twice",
        delivery_key(3, 259) + encode_requeues(2),
        (
            (1, "key: a delivery row"),
            (1, "level 3"),
            (8, "sequence id 259, big-endian"),
            HEAD,
            (1, "flags"),
            NO_EXTENSION,
            (4, "2 requeues"),
        ),
    ),
    (
        "history record: two ranges were rejected",
        history_key(PLACE)
        + encode_events(HistoryRecord.DEQUEUED, DequeueReason.REJECTED, 0x101, [(258, 260), (263, 264)], b"amq.ctag")[
            0
        ],
        (
            (1, "key: history"),
            (8, "queue 0x102, big-endian"),
            (1, "level 3"),
            HEAD,
            (1, "flags"),
            NO_EXTENSION,
            (1, "kind 1: dequeued"),
            (1, "why 4: rejected"),
            (2, "detail bytes 8"),
            (8, "when, wall ms"),
            (4, "2 ranges"),
            (8, "detail: amq.ctag"),
            (16, "258 … 259"),
            (16, "263"),
        ),
    ),
)
