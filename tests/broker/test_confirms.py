"""Confirms: callbacks run when an epoch is durable, without a waiting thread."""

from __future__ import annotations

import threading

from warren.base.errors import SyncFailed
from warren.base.ids import Epoch
from warren.base.threads import Background, SystemThreads
from warren.broker.confirms import Confirms


def test_all_callbacks_run_in_order_when_the_newest_is_durable() -> None:
    waited: list[Epoch] = []
    notified: list[int] = []
    may_go, waits = threading.Event(), threading.Event()

    def wait(epoch: Epoch) -> None:
        waits.set()
        assert may_go.wait(10)
        waited.append(epoch)

    confirms = Confirms(SystemThreads(), wait)
    confirms.add(Epoch(1), lambda error: notified.append(1))
    assert waits.wait(10)
    for number in (2, 3, 4):  # they come while the first is on its way: one wait for all of them
        confirms.add(Epoch(number), lambda error, number=number: notified.append(number))  # type: ignore[misc]
    assert notified == []
    may_go.set()
    confirms.stop()
    assert (waited, notified) == ([1, 4], [1, 2, 3, 4])


def test_a_failure_is_reported_too() -> None:
    failure, notified = SyncFailed("no"), list[BaseException | None]()

    def wait(epoch: Epoch) -> None:
        raise failure

    confirms = Confirms(SystemThreads(), wait)
    confirms.add(Epoch(1), notified.append)
    confirms.stop()
    assert notified == [failure]


def test_without_a_callback_nothing_is_started() -> None:
    Confirms(SystemThreads(), lambda epoch: None).stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "warren-confirms"]


def test_a_callback_that_raises_is_an_alarm_and_the_others_are_called() -> None:
    background, called, served = Background(), list[int](), threading.Event()
    is_in_first_round, both_added = threading.Event(), threading.Event()

    def wait(epoch: Epoch) -> None:
        is_in_first_round.set()
        assert both_added.wait(10)

    confirms = Confirms(SystemThreads(), wait, background)

    def fail(error: BaseException | None) -> None:
        raise ValueError("a defect")

    confirms.add(Epoch(1), lambda error: None)
    assert is_in_first_round.wait(10)
    confirms.add(Epoch(1), fail)  # both in the second round: a good third one would clear the alarm
    confirms.add(Epoch(1), lambda error: served.set())
    both_added.set()
    assert served.wait(10)
    while not (alarms := background.alarms()):
        continue
    assert "ValueError('a defect')" in alarms[0]
    confirms.add(Epoch(2), lambda error: called.append(2))
    confirms.stop()
    assert (called, background.alarms()) == ([2], [])
