"""Threads that take turns: the seed alone decides, no thread is left behind, and a power cut ends all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.simulator.actor_schedule import Deadlock
from tools.simulator.stepped_threads import SteppedThreads
from warren.base.errors import Misuse
from warren.base.threads import SystemThreads, Threads
from warren.testing.fakes import ManualClock
from warren.testing.faulty_files import FaultyFiles
from warren.testing.memory_files import MemoryFiles, PowerCut

SECOND_NS = 1_000_000_000


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> object:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def letters(seed: int, switch_probability: float = 0.5) -> tuple[str, list[str]]:
    """Three actors, each writing its letter ten times with a pause between."""
    threads = SteppedThreads(seed, switch_probability=switch_probability)
    written: list[str] = []

    def body(letter: str) -> None:
        for _ in range(10):
            written.append(letter)
            threads.pause()

    def main() -> None:
        for started in [threads.start(letter, partial(body, letter)) for letter in "abc"]:
            started.join()

    threads.run(main)
    return "".join(written), threads.choices


def test_one_seed_is_one_interleaving_and_seeds_differ() -> None:
    assert [letters(seed) for seed in range(20)] == [letters(seed) for seed in range(20)]
    assert len({letters(seed)[0] for seed in range(20)}) > 15


def test_without_switching_actors_change_only_when_they_must() -> None:
    written, _ = letters(1, switch_probability=0)
    assert sorted({written[:10], written[10:20], written[20:]}) == ["a" * 10, "b" * 10, "c" * 10]


def test_a_lost_update_between_seams_is_found_by_some_seed_and_a_lock_prevents_it() -> None:
    def total(seed: int, is_locked: bool) -> int:
        threads = SteppedThreads(seed, switch_probability=0.5)
        condition, count = threads.condition(), [0]

        def add() -> None:
            for _ in range(3):
                if is_locked:
                    with condition:
                        read_pause_write()
                else:
                    read_pause_write()

        def read_pause_write() -> None:
            seen = count[0]
            threads.pause()
            count[0] = seen + 1

        threads.run(lambda: threads.together([add, add]))
        return count[0]

    assert {total(seed, is_locked=True) for seed in range(50)} == {6}
    assert {total(seed, is_locked=False) for seed in range(50)} > {6}


def test_a_waiter_resumes_when_it_is_notified_and_holds_the_lock_again() -> None:
    def once(seed: int) -> None:
        threads = SteppedThreads(seed)
        condition = threads.condition()
        items: list[int] = []
        taken: list[int] = []

        def consume() -> None:
            for _ in range(5):
                with condition:
                    while not items:
                        assert condition.wait()
                    taken.append(items.pop(0))

        def main() -> None:
            consumer = threads.start("consumer", consume)
            for number in range(5):
                with condition:
                    items.append(number)
                    condition.notify_all()
            consumer.join()

        threads.run(main)
        assert taken == [0, 1, 2, 3, 4]

    for seed in range(50):
        once(seed)


def test_time_passes_only_when_no_actor_can_run() -> None:
    clock = ManualClock()
    threads = SteppedThreads(3, clock)
    condition = threads.condition()
    scheduled: list[tuple[str, int]] = []

    def sleep(name: str, seconds: float) -> None:
        with condition:
            assert not condition.wait(seconds)
        scheduled.append((name, clock.monotonic_ns()))

    def main() -> None:
        late = threads.start("late", lambda: sleep("late", 5))
        early = threads.start("early", lambda: sleep("early", 2))
        late.join()
        early.join()

    threads.run(main)
    assert scheduled == [("early", 2 * SECOND_NS), ("late", 5 * SECOND_NS)]


def test_a_notify_before_the_deadline_costs_no_time() -> None:
    clock = ManualClock()
    threads = SteppedThreads(1, clock)
    condition = threads.condition()
    answers: list[bool] = []

    def wait() -> None:
        with condition:
            answers.append(condition.wait(60))

    def main() -> None:
        waiter = threads.start("waiter", wait)
        while not condition._waiting:
            threads.pause()
        with condition:
            condition.notify_all()
        waiter.join()

    threads.run(main)
    assert answers == [True]
    assert clock.monotonic_ns() == 0


def test_a_deadline_that_the_test_passes_by_hand_counts_too() -> None:
    clock = ManualClock()
    threads = SteppedThreads(1, clock, switch_probability=1)
    condition = threads.condition()
    answers: list[bool] = []

    def wait() -> None:
        with condition:
            answers.append(condition.wait(10))

    def main() -> None:
        threads.start("waiter", wait)
        while not condition._waiting:
            threads.pause()
        clock.advance_ns(11 * SECOND_NS)
        while not answers:
            threads.pause()

    threads.run(main)
    assert answers == [False]


def test_a_join_with_a_timeout_ends_and_is_not_woken_by_the_late_end() -> None:
    clock = ManualClock()
    threads = SteppedThreads(1, clock)
    condition = threads.condition()

    def sleep() -> None:
        with condition:
            condition.wait(10)

    def main() -> tuple[bool, bool, int]:
        sleeper = threads.start("sleeper", sleep)
        sleeper.join(3)
        was_alive = sleeper.is_alive()
        other = threads.condition()
        with other:
            is_notified = other.wait(20)
        return was_alive, is_notified, clock.monotonic_ns()

    assert threads.run(main) == (True, False, 23 * SECOND_NS)


def test_a_deadlock_is_reported_with_who_waits_for_what() -> None:
    threads = SteppedThreads(1, switch_probability=1)
    first, second = threads.condition(), threads.condition()

    def cross(one: object, other: object) -> None:
        with one, other:  # type: ignore[attr-defined]
            threads.pause()

    def main() -> None:
        while True:
            threads.together([lambda: cross(first, second), lambda: cross(second, first)])

    with pytest.raises(Deadlock, match="no actor can run") as caught:
        threads.run(main)
    assert "main waits for a lock that job 1 holds" in str(caught.value)
    assert "job 1 waits for a lock that main holds" in str(caught.value)


def test_a_forgotten_notify_is_a_deadlock() -> None:
    threads = SteppedThreads(1)

    def main() -> None:
        with (condition := threads.condition()):
            condition.wait()

    with pytest.raises(Deadlock, match="main waits for a notify"):
        threads.run(main)


def test_a_power_cut_in_one_ends_all_others_at_their_next_seam() -> None:
    def once(seed: int) -> None:
        threads = SteppedThreads(seed)
        condition = threads.condition()
        ended: list[str] = []

        def forever(name: str, work: Callable[[], object]) -> None:
            try:
                while True:
                    work()
            except PowerCut:
                ended.append(name)
                raise

        def wait() -> None:
            with condition:
                condition.wait()

        def main() -> None:
            threads.start("waiter", lambda: forever("waiter", wait))
            threads.start("pauser", lambda: forever("pauser", threads.pause))
            threads.start("joiner", lambda: forever("joiner", lambda: threads.together([threads.pause, wait])))
            for _ in range(20):
                threads.pause()
            raise PowerCut("now")

        with pytest.raises(PowerCut, match="now"):
            threads.run(main)
        assert set(ended) <= {"waiter", "pauser", "joiner"}
        assert len(ended) == len(set(ended))

    for seed in range(50):
        once(seed)


def test_a_power_cut_in_a_started_thread_ends_main() -> None:
    threads = SteppedThreads(1)

    def cut() -> None:
        raise PowerCut("in the commit thread")

    def main() -> None:
        threads.start("commit", cut)
        while True:
            threads.pause()

    with pytest.raises(PowerCut, match="in the commit thread"):
        threads.run(main)


def test_a_power_cut_in_one_job_ends_the_others_it_ran_together_with() -> None:
    def once(seed: int) -> None:
        threads = SteppedThreads(seed)

        def cut() -> None:
            threads.pause()
            raise PowerCut("in a job")

        def forever() -> None:
            while True:
                threads.pause()

        with pytest.raises(PowerCut, match="in a job"):
            threads.run(lambda: threads.together([forever, cut] if seed % 2 else [cut, forever]))

    for seed in range(20):
        once(seed)


def test_a_wait_that_timed_out_is_forgotten_by_its_condition() -> None:
    clock = ManualClock()
    threads = SteppedThreads(1, clock)
    first, second = threads.condition(), threads.condition()

    def wait_twice() -> None:
        with first:
            assert not first.wait(1)
        with second:
            assert not second.wait(10)

    def main() -> None:
        waiter = threads.start("waiter", wait_twice)
        while not second._waiting:
            with (pause := threads.condition()):
                pause.wait(0.4)
        with first:
            first.notify_all()
        waiter.join()

    threads.run(main)
    assert clock.monotonic_ns() >= 11 * SECOND_NS


def test_no_actor_runs_on_while_the_first_one_unwinds() -> None:
    def once(seed: int) -> None:
        threads = SteppedThreads(seed, switch_probability=1)
        inner = MemoryFiles()
        disk = FaultyFiles(inner, cut_at=3, pause=threads.pause, on_cut=threads.cut_power)
        condition = threads.condition()
        turns_after_the_cut: list[str] = []

        def bystander() -> None:
            while True:
                threads.pause()
                if disk.is_cut:
                    turns_after_the_cut.append("bystander")

        def main() -> None:
            threads.start("bystander", bystander)
            try:
                for number in range(9):
                    disk.create(f"/{number}")
            finally:
                with condition:
                    condition.notify_all()

        with pytest.raises(PowerCut):
            threads.run(main)
        assert not turns_after_the_cut
        assert inner.list("/") == ["0", "1", "2"]

    for seed in range(50):
        once(seed)


def test_an_error_that_escapes_a_thread_ends_the_run() -> None:
    threads = SteppedThreads(1)

    def fail() -> None:
        raise ValueError("a bug in the background")

    def main() -> None:
        threads.start("background", fail)
        with (condition := threads.condition()):
            condition.wait()

    with pytest.raises(ValueError, match="a bug in the background"):
        threads.run(main)


def test_an_error_of_main_is_raised_and_others_are_ended() -> None:
    threads = SteppedThreads(1)
    unwound: list[str] = []

    def forever() -> None:
        try:
            while True:
                threads.pause()
        finally:
            unwound.append("forever")

    def main() -> None:
        threads.start("forever", forever)
        while len(threads.choices) < 10:
            threads.pause()
        raise KeyError("main")

    with pytest.raises(KeyError):
        threads.run(main)
    assert unwound == ["forever"]


def test_actors_left_over_are_ended_when_main_returns() -> None:
    threads = SteppedThreads(1)

    def forever() -> None:
        while True:
            threads.pause()

    def main() -> str:
        started = threads.start("forever", forever)
        assert started.is_alive()
        return "result"

    assert threads.run(main) == "result"


def test_a_thread_that_had_no_turn_before_the_cut_never_runs() -> None:
    threads = SteppedThreads(1, switch_probability=0)
    ran: list[str] = []

    def main() -> None:
        threads.start("late", lambda: ran.append("late"))
        raise PowerCut("first")

    with pytest.raises(PowerCut):
        threads.run(main)
    assert not ran


@pytest.mark.parametrize("kind", ["system", "stepped"])
def test_together_waits_for_all_and_raises_the_first_error(kind: str) -> None:
    system, stepped = SystemThreads(), SteppedThreads(2)
    threads: Threads = system if kind == "system" else stepped
    done: list[int] = []

    def job(number: int) -> Callable[[], None]:
        def body() -> None:
            done.append(number)
            if number in (1, 2):
                raise ValueError(f"job {number}")

        return body

    def main() -> None:
        threads.together([job(number) for number in range(4)])

    try:
        with pytest.raises(ValueError, match="job 1"):
            main() if kind == "system" else stepped.run(main)
        assert sorted(done) == [0, 1, 2, 3]
    finally:
        if system._pool is not None:
            system._pool.shutdown()


def test_what_breaks_the_contract_is_misuse() -> None:
    threads = SteppedThreads(1)
    condition = threads.condition()

    def reenter() -> None:
        with condition, condition:
            pass

    for attempt in (reenter, condition.wait, condition.notify_all, lambda: threads.run(lambda: None)):
        with pytest.raises(Misuse):
            threads.run(attempt)
    with pytest.raises(Misuse, match="outside a run"):
        threads.start("unused", lambda: None)


def test_outside_a_run_a_condition_can_be_entered_and_notified() -> None:
    condition = SteppedThreads(1).condition()
    with condition:
        condition.notify_all()
    with condition, pytest.raises(Misuse, match="inside a run"):
        condition.wait()


def test_threads_can_run_again_after_a_power_cut() -> None:
    threads = SteppedThreads(1)

    def cut() -> None:
        raise PowerCut("once")

    with pytest.raises(PowerCut):
        threads.run(cut)
    assert threads.run(lambda: 5) == 5


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32), st.floats(0, 1))
def test_a_thousand_turns_lose_nothing_whatever_the_seed(seed: int, switch_probability: float) -> None:
    threads = SteppedThreads(seed, switch_probability=switch_probability)
    condition = threads.condition()
    queue: list[int] = []
    got: list[int] = []

    def produce(start: int) -> None:
        for number in range(start, start + 20):
            with condition:
                queue.append(number)
                condition.notify_all()

    def consume() -> None:
        while len(got) < 60:
            with condition:
                while not queue and len(got) < 60:
                    condition.wait(1)
                got.extend(queue)
                queue.clear()

    def main() -> None:
        threads.together([consume, *(partial(produce, start) for start in (0, 100, 200)), consume])

    threads.run(main)
    assert sorted(got) == [*range(20), *range(100, 120), *range(200, 220)]


@pytest.mark.parametrize("seed", range(20))
def test_a_notify_between_a_deadline_and_the_turn_of_who_waited_is_no_error(seed: int) -> None:
    threads = SteppedThreads(seed, switch_probability=0.7)
    condition = threads.condition()
    answers: list[bool] = []

    def wait() -> None:
        with condition:
            answers.append(condition.wait(0.1))

    def main() -> None:
        others = [threads.start(f"waiter {number}", wait) for number in range(3)]
        for _ in range(10):
            threads.pause()
        threads.clock.advance_ns(200_000_000)
        threads.pause()
        with condition:
            condition.notify_all()
        for other in others:
            other.join()

    threads.run(main)
    assert len(answers) == 3
