"""The pin of a batch read: one for the whole plan, renewed while tasks run, released by the last of them.

    driver      share        pins/<id>.json of all files, and beside it pins/<id>.parts: a zero byte for each task
    executors   shared_pin   renew every third of LINGER_SECONDS while the task runs; at its end write 1 to its byte;
                             whoever then reads ones only has ended last, and releases the pin

Spark plans a batch read in a process that ends before the first task begins, and calls nothing when a job is over: no
part of the driver can release the pin. So the tasks do. A pin holds `pinSeconds` until the first task begins, and from
then on LINGER_SECONDS behind the last sign of life: where tasks failed, or were never wanted (`limit`), it lapses.

Always true: a task has a pin of its own on what it reads (pipeline/tasks), so no read depends on this one; it holds the
files for tasks that have not begun. A lost write of a byte costs LINGER_SECONDS and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from warren.base.errors import NotFound, WarrenError
from warren.base.repeating import repeatedly
from warren.log.machine import Environment
from warren.log.pins import Pins
from warren.pipeline.planning import Plan, Task, pins_of

LINGER_SECONDS = 60.0
_DONE = b"\1"
_log = logging.getLogger("warren.pipeline")


def share(machine: Environment, plan: Plan) -> list[Task]:
    """The tasks of a plan, which release its pin together."""
    if plan.pin is None:
        return plan.tasks
    pins = pins_of(machine, plan.tasks[0].directory)
    try:
        file = machine.files.create(pins.parts_path(plan.pin.id))
        try:
            file.write_at(0, [bytes(len(plan.tasks))])
        finally:
            file.close()
    except BaseException:
        pins.release(plan.pin)
        raise
    return [replace(task, plan_pin=plan.pin.id, part=part) for part, task in enumerate(plan.tasks)]


@contextmanager
def shared_pin(machine: Environment, task: Task) -> Iterator[None]:
    """Keep the plan's pin while the body runs. A body that raises leaves it to lapse: the task may be tried again."""
    if not task.plan_pin:
        yield
        return
    pins, seconds = pins_of(machine, task.directory), min(task.pin_seconds, LINGER_SECONDS)

    def renew() -> None:
        try:
            _renew(pins, task.plan_pin, seconds)
        except WarrenError as error:  # the tasks to come take pins of their own, and get `Gone` if they are too late
            _log.warning("pin of the plan not renewed: %s", error.what)

    renew()
    try:
        with repeatedly(machine.threads, "warren-plan-pin", seconds / 3, renew):
            yield
    except GeneratorExit:  # Spark has all rows it wants
        _end(machine, pins, task)
        raise
    _end(machine, pins, task)


def _renew(pins: Pins, identity: str, seconds: float) -> None:
    pin = pins.find(identity)
    if pin is None:
        return  # another run of the same plan has released it
    if not seconds * 2 / 3 <= pins.seconds_left(pin) <= seconds:  # else another task has just renewed it
        pins.renew(pin, seconds)


def _end(machine: Environment, pins: Pins, task: Task) -> None:
    with suppress(NotFound):  # released, or lapsed and removed
        file = machine.files.open(pins.parts_path(task.plan_pin), writable=True)
        try:
            file.write_at(task.part, [_DONE])
            ended = file.read_at(0, file.size())
        finally:
            file.close()
        if ended == _DONE * len(ended):
            pins.revoke(task.plan_pin)
