"""The control socket of a database that reflects in this process: what `warren reflection` talks to.

In mode `watch` the puller serves the same orders at the same place (snapshot/puller), so a person need not know which
it is. The database itself opens no socket: it also runs where there is no machine, in the simulator.
"""

from __future__ import annotations

import os

from warren.files.protocol import join
from warren.log.machine import Environment
from warren.snapshot.control_socket import ControlServer, Message
from warren.snapshot.database import Database
from warren.snapshot.feeds import Mode
from warren.snapshot.layout import REFLECTION_SOCKET
from warren.snapshot.reflecting import mark_to_json, orders_of
from warren.snapshot.reflection import ReflectionSettings


def served(database: Database, machine: Environment, settings: ReflectionSettings) -> ControlServer | None:
    """Listen for orders, unless another process does."""
    if settings.reflection is Mode.WATCH:
        return None

    def told() -> Message:
        applied = database.store.applied
        flushed = applied._replace(epoch=database.log.manifest.state.reflected)
        return {
            "mode": str(settings.reflection),
            "pid": os.getpid(),
            "durable": database.log.durable,
            "applied": mark_to_json(applied),
            "flushed": mark_to_json(flushed),
        }

    path = join(database.directory, REFLECTION_SOCKET)
    orders = orders_of(database.reflection, told)
    if database.orders is not None:  # what `warren pipeline sync` asks for
        orders.update(database.orders.handlers())
    return ControlServer(path, orders, machine.threads, machine.clock, takes_over=True, background=machine.background)
