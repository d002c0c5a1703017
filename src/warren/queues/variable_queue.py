"""Publish and fetch rates of a queue, smoothed.

    rate ← rate · w + (seen / elapsed) · (1 − w)          w = ½ ^ (elapsed / half life)

Counting is an addition; the clock is read only when a rate is. A burst fades with the half life; the rates of an idle
queue go to 0.

Variable queue: ordered, acknowledged, and limited in memory (seeds 000 and 001).

                    ┌────────── sub-queues ──────────┐
    publish ──────▶ │ q1 ▸ q2 ▸ delta ▸ q3 ▸ q4      │ ──fetch──▶ pending_acks ──ack──▶ gone (index_counters)
       │            └───┬──────────────▲─────────────┘                 │
       │                │ paging       └──────────requeue──────────────┘
       ▼                ▼
    IndexBatch       transients                persistent messages are written when published, whatever memory there is

A message is persistent if the queue is durable and the message is marked so (VQ-02). A persistent message goes to the
queue index, or if it is large or shared to the message store, before it can be fetched (VQ-04 … VQ-06); a transient one
is written only if memory runs out. Messages published together stay one slice until an operation splits it: there is
no object per message.

Fetches go in order, so everything below the end of the last new message fetched was delivered before, and nothing above
it: `delivered_to` decides for each message whether it is a redelivery.

Residence of a message, in the words of the seeds:

              contents      position                              in
    alpha     memory        memory                                q1, q4
    beta      disk          memory                                q2, q3
    gamma     disk          memory and disk                       q2, q3
    delta     disk          disk                                  delta

A persistent message is written when published, position and contents: as soon as its contents leave memory it is a
gamma. A transient one that left memory is a beta, since only the queue knows its position (C-05). `MessageStatus` is
the seed's record per message (VQ-03). Here a run has what its messages share and a slice their residence, so the record
is built on demand.

Paging: quotas from the memory in use against a target (VQ-34).

    target      seconds × (messages published and fetched per second)
    in memory   contents of ready and of pending messages, and positions beyond `beta_messages_max`
    quota       in memory − target: spent on contents (q1, then q4), then on pending ones, then on positions

The messages that are delivered last are paged first, and only until the quota is spent: messages to be sent soon stay
in memory (VQ-38). One quota is shared by all sub-queues, q1 first (C-03). A step is bounded in messages and roughly in
bytes, so that a queue that shrinks does not delay others: call `page` until it returns False. Without a target nothing
is paged.

Invariants: `invariants.check`. A queue has one caller at a time, and one `IndexBatch` at a time. An aborted batch that
dropped or purged messages leaves the queue different from its log: `has_diverged`; it refuses further calls and has to
be opened again. Publishes and settlements of an aborted batch are undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple

from warren.base.environment import Clock
from warren.base.errors import Damage, Refused
from warren.base.ids import Epoch, SequenceId
from warren.base.messages import Origin, Publication, QueuePlace, Run, Slice, sizes_of
from warren.queue_index.batch import NOTHING, IndexBatch
from warren.queue_index.history_format import DequeueReason
from warren.queue_index.row_format import FIRST, Counters, cuts
from warren.queues.backing_queue import Fetched, MessageSizes, TagRange
from warren.queues.contents import ContentReader, Stores
from warren.queues.index_counters import IndexCounters
from warren.queues.pending_acks import PendingAcks
from warren.queues.settings import VariableQueueSettings
from warren.queues.subqueues import Delta, SubQueues, Transients, pass_over

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000


class Rates:
    __slots__ = ("_clock", "_egress", "_half_life_ns", "_ingress", "_since_ns", "fetched", "published")

    def __init__(self, clock: Clock, half_life_ms: int) -> None:
        self._clock = clock
        self._half_life_ns = half_life_ms * MS_NS
        self._since_ns = clock.monotonic_ns()
        self._ingress = 0.0
        self._egress = 0.0
        self.published = 0  # messages since the last update
        self.fetched = 0

    @property
    def ingress(self) -> float:
        """Messages published per second."""
        self._update()
        return self._ingress

    @property
    def egress(self) -> float:
        """Messages fetched per second."""
        self._update()
        return self._egress

    @property
    def both(self) -> float:
        self._update()
        return self._ingress + self._egress

    def duration(self, count: int) -> float:
        """How many seconds `count` messages last; infinite at rate 0."""
        rate = self.both
        return count / rate if rate else math.inf

    def _update(self) -> None:
        now_ns = self._clock.monotonic_ns()
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns <= 0:
            return
        weight = 0.5 ** (elapsed_ns / self._half_life_ns)
        self._ingress = self._ingress * weight + self.published * SECOND_NS / elapsed_ns * (1 - weight)
        self._egress = self._egress * weight + self.fetched * SECOND_NS / elapsed_ns * (1 - weight)
        self._since_ns, self.published, self.fetched = now_ns, 0, 0


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
    """Names a message for ever: sequence ids are never reused."""

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


MESSAGES_MAX = 1024  # read together


def browse(subqueues: SubQueues, reader: ContentReader, is_changed: Callable[[], bool]) -> Iterator[Slice]:
    """Ready messages in order, with contents, until the queue changes. Contents are read slice by slice."""
    for slices in _ready(subqueues):
        for slice_ in slices:
            for start in range(slice_.start, slice_.stop, MESSAGES_MAX):
                stop, contents = min(slice_.stop, start + MESSAGES_MAX), slice_.contents
                in_memory = None if contents is None else contents[start - slice_.start : stop - slice_.start]
                part = Slice(slice_.run, start, stop, in_memory)
                part.contents = reader.read([part])[0]
                yield part
                if is_changed():
                    return


def status(
    place: QueuePlace,
    sequence_id: SequenceId,
    subqueues: SubQueues,
    pending: PendingAcks,
    delivered_to: SequenceId,
    embed_below: int,
) -> MessageStatus | None:
    """Everything known of one message; None if it is gone or unknown."""
    in_memory = chain(subqueues, pending)
    found = _slice_of(in_memory, sequence_id)
    is_in_delta = found is None
    if found is None:
        found = _slice_of(chain.from_iterable(subqueues.delta.walk(MESSAGES_MAX)), sequence_id)
    if found is None:
        return None
    to = _persist_to(found.run, sequence_id, embed_below)
    return status_of(place, found, sequence_id, delivered_to, to, is_in_delta)


def _ready(subqueues: SubQueues) -> Iterator[list[Slice]]:
    yield [*subqueues.q4, *subqueues.q3]
    yield from subqueues.delta.walk(MESSAGES_MAX)
    yield [*subqueues.q2, *subqueues.q1]


def _slice_of(slices: Iterator[Slice], sequence_id: SequenceId) -> Slice | None:
    return next((slice_ for slice_ in slices if slice_.first <= sequence_id < slice_.end), None)


def _persist_to(run: Run, sequence_id: SequenceId, embed_below: int) -> PersistTo:
    if not run.is_persistent:
        return PersistTo.TRANSIENT_STORE
    index = sequence_id - run.first
    is_large = bool(run.stored) or run.size_of(index, index + 1) >= embed_below
    return PersistTo.MESSAGE_STORE if is_large else PersistTo.QUEUE_INDEX


class Paging:
    def __init__(
        self,
        subqueues: SubQueues,
        pending: PendingAcks,
        reader: ContentReader,
        rates: Rates,
        is_written: Callable[[Run], bool],
        settings: VariableQueueSettings,
    ) -> None:
        self._subqueues = subqueues
        self._pending = pending
        self._reader = reader
        self._rates = rates
        self._is_written = is_written
        self._settings = settings
        self.target_count: int | None = None  # of messages in memory; None: no limit

    def set_ram_duration_target(self, seconds: float | None) -> None:
        self.target_count = None if seconds is None else int(seconds * self._rates.both)

    def ram_duration(self) -> float:
        return self._rates.duration(self.count)

    @property
    def count(self) -> int:
        """Messages in memory: those with contents, and positions beyond the limit."""
        betas = max(0, self._subqueues.beta_count - self._settings.beta_messages_max)
        return self._subqueues.ram_count + self._pending.ram_count + betas

    @property
    def quota(self) -> int:
        """How many messages are over the target."""
        return 0 if self.target_count is None else max(0, self.count - self.target_count)

    def page(self) -> bool:
        """One step; whether another one is useful."""
        quota = self.quota
        if quota:
            self._reader.forget()
        step = min(quota, self._step_max())
        return self.reduce_memory_use(step) > 0 and self.quota > 0

    def reduce_memory_use(self, quota: int) -> int:
        """Page out up to `quota` messages; of how many contents or position left memory."""
        left = quota - self._subqueues.release_settled() if quota else 0
        left -= self._subqueues.push_alphas_to_betas(left, 0)
        left -= self._subqueues.push_alphas_to_betas(0, left)
        if left > 0:
            left -= self._pending.release(left, self._is_written, self._subqueues.without_contents)
        betas = self._subqueues.beta_count - self._settings.beta_messages_max
        if left > 0 and betas > 0:
            left -= self._subqueues.push_betas_to_deltas(min(left, betas))
        return quota - left

    def _step_max(self) -> int:
        subqueues, pending, settings = self._subqueues, self._pending, self._settings
        in_ram = subqueues.ram_count + pending.ram_count
        each = (subqueues.ram_bytes + pending.ram_bytes) // in_ram if in_ram else 0
        return max(1, min(settings.page_messages_max, settings.page_bytes_max // max(1, each)))


MESSAGE_BYTES = 48  # about the memory of a message besides its contents


class VariableQueue:
    """Implements `BackingQueue`."""

    def __init__(
        self,
        place: QueuePlace,
        is_durable: bool,
        stores: Stores,
        clock: Clock,
        settings: VariableQueueSettings | None = None,
        newest: Epoch = NOTHING,
        counters: Counters | None = None,
    ) -> None:
        """`newest`: the last epoch that a previous incarnation of this queue wrote since the log was opened.
        `counters`: those of the index, if they were read already."""
        self._place = place
        self._is_durable = is_durable
        self._stores = stores
        self.settings = settings or VariableQueueSettings()
        if counters is None:
            counters = stores.index.recover(place, newest, pass_over) if is_durable else Counters()
        self._is_blank = counters == Counters()  # the index has no row of it
        self._transients = Transients(stores.transient)
        self.index_counters = IndexCounters(place, counters, self.settings.counters_every_runs, stores)
        self.pending = PendingAcks()
        self.rates = Rates(clock, self.settings.rate_half_life_ms)
        delta = Delta(place, stores, self._transients, self.index_counters, self.pending)
        self.subqueues = SubQueues(
            stores, self._transients, self.index_counters, delta, self.settings.delta_read_messages
        )
        self._reader = ContentReader(place, stores, self._transients.read, self.settings.read_ahead_bytes_max)
        self.paging = Paging(self.subqueues, self.pending, self._reader, self.rates, stores.is_written, self.settings)
        self._version = 0  # changes with the ready messages; ends a `browse`
        self._batch: IndexBatch | None = None  # the one that this queue participates in
        self._published_from: SequenceId | None = None  # first message it published; None: it also dropped or purged
        self._has_diverged = False
        self._settled: list[Slice] = []  # by a batch that has not ended
        delta.recover(counters, newest)
        self.subqueues.refill()
        self._report_alive()

    # -- publishing ----------------------------------------------------------------------------------------------

    def publish(self, publication: Publication, batch: IndexBatch) -> None:
        self._join(batch)
        contents = publication.contents
        sizes = sizes_of(contents)
        is_persistent = self._is_durable and publication.is_persistent
        embed_below = self._embed_below(publication) if is_persistent else None
        limits = self.settings.run_bytes_max, self.settings.run_messages_max
        slices = []
        first = self.index_counters.next
        for start, stop in cuts(sizes, len(contents), embed_below, *limits):
            run = Run(
                first=SequenceId(first + start),
                count=stop - start,
                sizes=sizes if isinstance(sizes, int) else sizes[start:stop],
                is_persistent=is_persistent,
                expires_ms=publication.expires_ms,
                published_ms=publication.published_ms,
                origin=publication.origin,
            )
            slices.append(Slice(run, 0, run.count, list(contents[start:stop])))
        if embed_below is not None:
            self._write(publication, slices, embed_below, batch)
        for slice_ in slices:
            self.subqueues.put(slice_)
        self.index_counters.next = SequenceId(first + len(contents))
        self.rates.published += len(contents)
        self._version += 1
        if is_persistent and self.index_counters.is_due:
            self.index_counters.write(self._oldest(), batch)
        self._report_alive()

    def _embed_below(self, publication: Publication) -> int:
        """Contents for several queues are stored once, whatever their size."""
        return self.settings.queue_index_embed_msgs_below if publication.fan_out <= 1 else 0

    def _write(self, publication: Publication, slices: list[Slice], embed_below: int, batch: IndexBatch) -> None:
        """The contents of a run are all small or all large."""
        for slice_ in slices:
            run, contents = slice_.run, slice_.contents
            assert contents is not None
            if len(contents[0]) < embed_below:
                batch.publish(self._place, run, contents)
            else:
                batch.publish(self._place, run, None)
                part = publication, run.first - slices[0].run.first
                self._stores.persistent.submit(part, contents, self._place, run, batch)
        for slice_ in slices:
            self.index_counters.published(slice_.run)

    # -- fetching ------------------------------------------------------------------------------------------------

    def fetch(self, count: int, bytes_max: int | None = None) -> list[Fetched]:
        self._check_diverged()
        fetched: list[Fetched] = []
        while count > 0 and self.subqueues.front.count:
            try:
                found = self.take(count, bytes_max, is_first=not fetched)
            except Damage:
                if fetched:
                    break  # serve what is readable; the next fetch raises
                raise
            if found is None:
                break
            self.subqueues.refill()
            fetched.append(found)
            count -= len(found.slice)
            if bytes_max is not None:
                bytes_max -= found.slice.size_bytes
        return fetched

    def take(self, count: int, bytes_max: int | None = None, is_first: bool = True) -> Fetched | None:
        """Fetch up to `count` messages of the slice at the head; None if they are too large. `subqueues.refill` has to
        follow."""
        self._check_diverged()
        subqueue, delivered_to = self.subqueues.front, self.index_counters.delivered_to
        head = subqueue.first
        is_redelivered = head.first < delivered_to
        if is_redelivered:
            count = min(count, delivered_to - head.first)
        if bytes_max is not None:
            count = head.fitting(count, max(0, bytes_max)) or (1 if is_first else 0)
            if not count:
                return None
        contents = None
        if head.contents is None:
            contents = self._reader.read_first(subqueue, count)
            count = len(contents)
        taken = self.subqueues.take(count)
        if contents is not None:
            taken.contents = contents
        self.pending.add(taken)
        self.index_counters.delivered_to = max(delivered_to, taken.end)
        self.rates.fetched += len(taken)
        self._version += 1
        return Fetched(taken.first, taken, is_redelivered)

    def head(self) -> Slice | None:
        subqueue = self.subqueues.front
        return Slice(subqueue.first.run, subqueue.first.start, subqueue.first.stop, None) if subqueue.count else None

    def set_aside(self, count: int) -> int:
        """Skip unreadable messages at the head."""
        if not self.subqueues.front.count:
            return 0
        taken = self.subqueues.take(count)
        taken.contents = None
        self.pending.add(taken)
        self.subqueues.refill()
        self.index_counters.delivered_to = max(self.index_counters.delivered_to, taken.end)
        self._version += 1
        return len(taken)

    # -- pending messages ----------------------------------------------------------------------------------------

    def ack(self, tags: Sequence[TagRange], reason: DequeueReason, batch: IndexBatch) -> int:
        self._check_diverged()
        taken = self.pending.take(tags)
        return self._release(taken, reason, batch, were_pending=True)

    def read_pending(self, tags: Sequence[TagRange]) -> list[Slice]:
        slices = self.pending.select(tags)
        for slice_, contents in zip(slices, self._reader.read(slices), strict=True):
            slice_.contents = contents
        return slices

    def requeue(self, tags: Sequence[TagRange], batch: IndexBatch) -> int:
        self._check_diverged()
        taken = self.pending.take(tags)
        if not taken:
            return 0
        persistent = [(slice_.first, slice_.end) for slice_ in taken if slice_.run.is_persistent]
        if persistent:
            batch.requeued(self._place, persistent)
        count = sum(map(len, taken))
        self.subqueues.put_back(taken)
        self._version += 1
        return count

    # -- removing ------------------------------------------------------------------------------------------------

    def drop(self, count: int, reason: DequeueReason, batch: IndexBatch) -> int:
        self._check_diverged()
        dropped: list[Slice] = []
        while count > 0 and self.subqueues.front.count:
            dropped.append(self.subqueues.take(count))
            self.subqueues.refill()
            count -= len(dropped[-1])
        self._version += 1
        return self._release(dropped, reason, batch)

    def purge(self, batch: IndexBatch) -> int:
        self._check_diverged()
        purged = sum(self._dequeue(slices, DequeueReason.PURGED, batch) for slices in self.subqueues.take_all())
        if self._batch is batch:
            self.index_counters.write(self._oldest(), batch)
        self._version += 1
        return purged

    def delete(self, batch: IndexBatch) -> None:
        if self._is_durable:
            self._stores.note_deleted(self.ready_bytes + self.pending.size_bytes)
            batch.remove_queue(self._place.queue)
        for subqueue in (self.subqueues.q4, self.subqueues.q3, self.subqueues.q2, self.subqueues.q1):
            subqueue.take_all()
        self.subqueues.delta.clear()
        self.index_counters.clear()
        self.pending.take([(slice_.first, slice_.end) for slice_ in self.pending])
        self._transients.clear()
        self._reader.forget()
        self._version += 1
        self._report_alive()

    def _release(
        self, slices: list[Slice], reason: DequeueReason, batch: IndexBatch, were_pending: bool = False
    ) -> int:
        """Dequeue messages, and write the counters."""
        count = self._dequeue(slices, reason, batch, were_pending)
        if self._batch is batch:
            self.index_counters.write(self._oldest(), batch)
        return count

    def _dequeue(
        self, slices: list[Slice], reason: DequeueReason, batch: IndexBatch, were_pending: bool = False
    ) -> int:
        """`were_pending`: an abort can undo it, unless there are transient messages: those are gone at once."""
        persistent = [slice_ for slice_ in slices if slice_.run.is_persistent]
        if persistent:
            self._join(batch)
            if were_pending and len(persistent) == len(slices):
                self._settled += slices
            else:
                self._published_from = None
            self.index_counters.dequeue(persistent, reason, batch)
        if len(persistent) < len(slices):
            for slice_ in slices:
                if not slice_.run.is_persistent:
                    self._transients.release(slice_)
        self._report_alive()
        return sum(map(len, slices))

    # -- reading -------------------------------------------------------------------------------------------------

    def browse(self) -> Iterator[Slice]:
        version = self._version
        return browse(self.subqueues, self._reader, lambda: self._version != version)

    def status(self, sequence_id: SequenceId) -> MessageStatus | None:
        """Everything known of one message; None if it is gone or unknown."""
        embed_below, delivered_to = self.settings.queue_index_embed_msgs_below, self.index_counters.delivered_to
        return status(self._place, sequence_id, self.subqueues, self.pending, delivered_to, embed_below)

    def __len__(self) -> int:
        return self.subqueues.count

    @property
    def ready_bytes(self) -> int:
        return self.subqueues.size_bytes

    @property
    def pending_count(self) -> int:
        return self.pending.count

    @property
    def ram_bytes(self) -> int:
        subqueues, pending, reader = self.subqueues, self.pending, self._reader
        messages = subqueues.ram_count + pending.ram_count + reader.ahead_count
        return subqueues.ram_bytes + pending.ram_bytes + reader.ahead_bytes + messages * MESSAGE_BYTES

    def sizes(self) -> MessageSizes:
        subqueues, pending, index_counters = self.subqueues, self.pending, self.index_counters
        ram_bytes = subqueues.ram_bytes + pending.ram_bytes
        return MessageSizes(
            pending.size_bytes,
            subqueues.ram_count,
            pending.ram_count,
            ram_bytes,
            index_counters.count,
            index_counters.size_bytes,
        )

    def facts(self) -> Mapping[str, int | float | str]:
        subqueues = self.subqueues
        return {
            "kind": "variable",
            "ready": len(self),
            "ready_bytes": self.ready_bytes,
            "pending": self.pending_count,
            "ram_bytes": self.ram_bytes,
            "q1": subqueues.q1.count,
            "q2": subqueues.q2.count,
            "delta": subqueues.delta.count,
            "q3": subqueues.q3.count,
            "q4": subqueues.q4.count,
            "missing": subqueues.delta.missing,
            "next": self.index_counters.next,
            "delivered_to": self.index_counters.delivered_to,
            "ingress": self.rates.ingress,
            "egress": self.rates.egress,
        }

    # -- memory --------------------------------------------------------------------------------------------------

    def set_ram_duration_target(self, seconds: float | None) -> None:
        self.paging.set_ram_duration_target(seconds)

    def ram_duration(self) -> float:
        return self.paging.ram_duration()

    def page(self) -> bool:
        return self.paging.page()

    # -- start, stop and the end of a batch ------------------------------------------------------------------------

    def resume(self, batch: IndexBatch) -> None:
        """After a start, before the first fetch: from now on only `stop` makes a stop clean."""
        if self._is_durable:
            self._join(batch)
            self.index_counters.write(self._oldest(), batch)

    def stop(self, batch: IndexBatch) -> None:
        """A queue that never had a message writes nothing: the next start finds it as this one did."""
        if self._is_durable and not (self._is_blank and self.index_counters.next == FIRST):
            batch.counters(self._place, self.index_counters.counters(self._oldest(), is_clean=True))

    def before_commit(self, runs: Sequence[tuple[QueuePlace, Run]]) -> None:
        """Nothing to write: changes were added to the batch at once."""

    def after_commit(self, epoch: Epoch) -> None:
        self._batch, self._settled = None, []
        self.subqueues.delta.newest = max(self.subqueues.delta.newest, epoch)
        self.index_counters.settled(epoch)

    def on_abort(self) -> None:
        """Undo publishes, and make settled messages pending again. Dropped or purged messages cannot be restored."""
        first, self._batch = self._published_from, None
        settled, self._settled = self._settled, []
        if first is None or self.index_counters.delivered_to > first:
            self._has_diverged = True
            return
        taken = self.subqueues.take_from(first)
        self._has_diverged = sum(map(len, taken)) != self.index_counters.next - first
        self.index_counters.unpublish(first, [slice_.run for slice_ in taken if slice_.run.is_persistent])
        self.index_counters.undo_dequeues(settled)
        for slice_ in settled:
            self.pending.add(slice_)
        self._version += 1
        self._report_alive()

    # -- helpers -------------------------------------------------------------------------------------------------

    def _join(self, batch: IndexBatch) -> None:
        """Participate in a batch."""
        self._check_diverged()
        if batch is not self._batch:
            batch.join(self)
            self._published_from = self.index_counters.next if self._batch is None else None
            self._batch = batch

    def _report_alive(self) -> None:
        self._stores.report_alive(self._place, self.subqueues.size_bytes + self.pending.size_bytes)

    @property
    def has_diverged(self) -> bool:
        return self._has_diverged

    def _check_diverged(self) -> None:
        if self._has_diverged:
            what = f"queue {self._place.queue}: a batch that removed messages was not written"
            raise Refused(what, "open the queue again: it recovers the state of its log")

    def _oldest(self) -> Slice | None:
        """The slice of the first ready or pending message."""
        subqueue, pending = self.subqueues.front, self.pending.head
        if not subqueue.count:
            return pending
        return subqueue.first if pending is None or subqueue.first.first < pending.first else pending
