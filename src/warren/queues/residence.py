"""Where a message is: the four words of the seeds, and all that is known of one message.

              contents      position                              in
    alpha     memory        memory                                q1, q4
    beta      disk          memory                                q2, q3
    gamma     disk          memory and disk                       q2, q3
    delta     disk          disk                                  delta

A persistent message is written when it is published, position and contents: as soon as its contents leave memory it is
a gamma. A transient one that had to leave memory is a beta, since nobody but the queue knows where it stands (C-05).

`MessageStatus` is the record that the seed keeps for each message (VQ-03). Here a run holds what messages have in
common and a slice where some of them are, so the record is made when somebody asks about one message, and not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from warren.base.ids import SequenceId
from warren.base.runs import Origin, QueuePlace, Slice


class Residence(Enum):
    ALPHA = "alpha"
    BETA = "beta"
    GAMMA = "gamma"
    DELTA = "delta"


class PersistTo(Enum):
    """Where the contents of a message go when they must be on disk."""

    QUEUE_INDEX = "queue index"
    MESSAGE_STORE = "message store"
    TRANSIENT_STORE = "transient store"


class MessageId(NamedTuple):
    """Names a message for ever: sequence ids of a queue are given once."""

    place: QueuePlace
    sequence_id: SequenceId


@dataclass(frozen=True, slots=True)
class MessageProperties:
    size_bytes: int
    expires_ms: int
    published_ms: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class MessageStatus:
    seq_id: SequenceId
    msg_id: MessageId
    msg: bytes | None  # None: not in memory
    is_persistent: bool
    is_delivered: bool
    msg_in_store: bool  # its contents are in a message store
    index_on_disk: bool  # its position is in the queue index
    persist_to: PersistTo
    msg_props: MessageProperties
    residence: Residence


def residence_of(slice_: Slice, is_in_delta: bool = False) -> Residence:
    if is_in_delta:
        return Residence.DELTA
    if slice_.contents is not None:
        return Residence.ALPHA
    return Residence.GAMMA if slice_.run.epoch else Residence.BETA


def status_of(
    place: QueuePlace, slice_: Slice, sequence_id: SequenceId, delivered_to: int, to: PersistTo, is_in_delta: bool
) -> MessageStatus:
    """One message of a slice."""
    run, index = slice_.run, sequence_id - slice_.run.first
    contents = slice_.contents
    return MessageStatus(
        seq_id=sequence_id,
        msg_id=MessageId(place, sequence_id),
        msg=None if contents is None else contents[index - slice_.start],
        is_persistent=run.is_persistent,
        is_delivered=sequence_id < delivered_to,
        msg_in_store=bool(run.stored),
        index_on_disk=run.is_persistent and run.epoch > 0,
        persist_to=to,
        msg_props=MessageProperties(run.size_of(index, index + 1), run.expires_ms, run.published_ms, run.origin),
        residence=residence_of(slice_, is_in_delta),
    )
