"""A vhost in the event loop: its request batch, the channels that wait for a confirm, and the wait for the disk.

    requests ──▶ batch ──▶ run ──▶ deliveries are written                         before the epoch is durable
                            │ epoch
                            └──▶ Confirms (a thread) ──▶ _on_durable, in the loop ──▶ confirms are written

Invariants
* No confirm is written before its epoch is durable, and confirms of a channel are in order: a batch without an epoch
  waits for the epoch of the batch before it.
* An exception in the batch, or for one connection, is an alarm, and concerns that batch or that connection only. An
  error of the commit ends all confirms (`Server.fail`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from warren.base.ids import Epoch
from warren.broker.declarations.dispatch import Declarations
from warren.broker.queue_handle import QueueHandle
from warren.broker.request_batch import BatchResult, RequestBatch, RouteCache
from warren.broker.vhost import Vhost
from warren.server.channel import ServerChannel

if TYPE_CHECKING:
    from warren.server.server import Server

_LOG = logging.getLogger(__name__)


class ConfirmingChannel(NamedTuple):
    """Messages of one batch that a channel waits for."""

    channel: ServerChannel
    first: int
    last: int


class VhostLoop:
    def __init__(self, server: Server, vhost: Vhost) -> None:
        self.vhost = vhost
        self.declarations = Declarations(vhost, server.counts, server.environment.rng)
        self.routes = RouteCache(vhost)
        self.batch = RequestBatch(vhost, server.environment.clock, partial(server.schedule, self))
        self._server = server
        self._confirming: dict[ServerChannel, int] = {}  # and the first of its tags in this batch
        self._newest = Epoch(0)  # that a batch waits for
        self._waiting_batches = 0
        vhost.set_on_ready(self.schedule_delivery)

    def confirms(self, channel: ServerChannel, first: int) -> None:
        """The channel has published in this batch, from this tag on, and waits for a confirm, also of messages that no
        queue takes."""
        self._confirming.setdefault(channel, first)
        self.batch.schedule()

    def schedule_delivery(self, handle: QueueHandle) -> None:
        """From this queue, to a consumer with room. Any thread."""
        loop = self._server.loop
        if _is_running(loop):
            self.batch.schedule_delivery(handle)
        else:
            loop.call_soon_threadsafe(self.batch.schedule_delivery, handle)

    def last_consumer_removed(self, handle: QueueHandle) -> None:
        """Delete a queue that is deleted with its last consumer."""
        self.run()
        self._server.clean_up(partial(self.declarations.consumer_removed, handle.id))

    # -- batches -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Execute the batch, and confirm when it is durable. Raises nothing: other vhosts wait behind it."""
        server, confirming = self._server, self._take_confirming()
        try:
            result = self.batch.execute()
        except Exception as error:  # a defect of the batch itself: nothing of it is confirmed
            server.batches.failed(error)
            self._refuse(confirming)
            server.flush()
            return
        server.batches.succeeded()
        if result.error is not None:
            _LOG.error("request batch failed for some queue", extra={"facts": {"why": result.error}})
        server.newest = max(server.newest, result.epoch)
        server.counts.received_bytes += result.size_bytes
        server.flush()  # deliveries do not wait for the disk
        if result.epoch or confirming:
            try:
                self._wait_for(result, confirming)
            except Exception as error:  # these publishers would wait for ever
                server.fail(error)
        server.monitor.after_batch(result.size_bytes)

    def _take_confirming(self) -> list[ConfirmingChannel]:
        confirming, self._confirming = self._confirming, {}
        return [ConfirmingChannel(channel, first, channel.published) for channel, first in confirming.items()]

    def _wait_for(self, result: BatchResult, confirming: list[ConfirmingChannel]) -> None:
        epoch = max(result.epoch, self._newest if self._waiting_batches else Epoch(0))
        if not epoch:
            self._confirm(confirming)
            return
        if not confirming and not result.size_bytes:  # acknowledgements: no client waits for them
            self._server.vhosts.commit_soon()
            return
        self._newest = epoch
        self._waiting_batches += 1
        self._server.add_unsafe(result.size_bytes)
        self._server.confirms.add(epoch, partial(self._call_on_durable, confirming, result.size_bytes))

    def _call_on_durable(
        self, confirming: list[ConfirmingChannel], size_bytes: int, error: BaseException | None
    ) -> None:
        """In the thread of `Confirms`."""
        loop = self._server.loop
        if not loop.is_closed():  # else there is no client left to confirm to
            loop.call_soon_threadsafe(self._on_durable, confirming, size_bytes, error)

    def _on_durable(self, confirming: list[ConfirmingChannel], size_bytes: int, error: BaseException | None) -> None:
        server = self._server
        if error is not None:
            server.fail(error)
            return
        try:
            self._waiting_batches -= 1
            server.subtract_unsafe(size_bytes)
            self._confirm(confirming)
            server.flush()
            server.release_unsafe()
        except Exception as defect:  # these publishers would wait for ever
            server.fail(defect)

    def _refuse(self, confirming: list[ConfirmingChannel]) -> None:
        for channel, first, last in confirming:
            try:
                channel.refused(first, last + 1 - first)
            except Exception as error:
                self._server.cut_off(channel.connection, error)

    def _confirm(self, confirming: Iterable[ConfirmingChannel]) -> None:
        for channel, _, last in confirming:
            try:
                channel.confirm(last)
            except Exception as error:
                self._server.cut_off(channel.connection, error)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is its thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
