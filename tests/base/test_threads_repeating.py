"""Something done again and again beside a piece of work."""

from __future__ import annotations

import threading

from warren.base.threads import SystemThreads, repeatedly


def test_it_is_done_again_and_again_while_the_body_runs_and_not_afterwards() -> None:
    thrice, calls = threading.Event(), list[int]()

    def call() -> None:
        calls.append(threading.get_ident())
        if len(calls) == 3:
            thrice.set()

    with repeatedly(SystemThreads(), "test", 0.001, call):
        assert thrice.wait(30)
    done = len(calls)
    assert set(calls) != {threading.get_ident()}
    assert not any(thread.name == "test" for thread in threading.enumerate())
    assert len(calls) == done


def test_a_call_that_raises_does_not_end_the_thread() -> None:
    twice, calls = threading.Event(), list[int]()

    def call() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("a defect")
        twice.set()

    with repeatedly(SystemThreads(), "test", 0.001, call):
        assert twice.wait(30)


def test_an_end_is_not_waited_for_as_long_as_a_turn_takes() -> None:
    calls = list[int]()
    with repeatedly(SystemThreads(), "test", 3600.0, lambda: calls.append(1)):
        pass
    assert not calls
