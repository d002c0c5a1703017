"""Nothing that a test opened outlives it by much: another test in the same process has to get by with what is left.

    a stage's machine     is switched off when the tests of its module are over (left_open)
    a module of tests     may leave a few descriptors and threads behind, of libraries that open something once
    a session's fixture   lives on by right: what it opens does not count
    Spark                 opens what it likes, in a process in which only its tests run

`select` takes no descriptor above 1023, and a client of a test uses it. So a module that leaves more fails by its name.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Generator, Iterator

import pytest

from tests.left_open import switch_off_machines
from tests.open_files import open_descriptors, thread_names

DESCRIPTORS_MAX = 8  # that a module may leave behind
THREADS_MAX = 3
PATIENCE_SECONDS = 5.0  # for what is ending just now

_by_right = [0, 0]  # descriptors and threads that fixtures of the session have opened


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    if fixturedef.scope not in ("session", "package"):
        return (yield)
    before = _open_now()
    try:
        return (yield)
    finally:
        for at, (now, then) in enumerate(zip(_open_now(), before, strict=True)):
            _by_right[at] += now - then


@pytest.fixture(scope="module", autouse=True)
def _leaves_little_open(request: pytest.FixtureRequest) -> Iterator[None]:
    descriptors, threads = open_descriptors(), thread_names()
    by_right = list(_by_right)
    yield
    switch_off_machines()
    most = [
        len(descriptors) + _by_right[0] - by_right[0] + DESCRIPTORS_MAX,
        len(threads) + _by_right[1] - by_right[1] + THREADS_MAX,
    ]
    if _is_within(most) or _uses_spark(request):
        return
    paths = Counter(path for number, path in open_descriptors().items() if descriptors.get(number) != path)
    names = Counter(thread_names()) - Counter(threads)
    pytest.fail(
        f"{request.node.nodeid} leaves too much behind: {len(open_descriptors())} descriptors, "
        f"there were {len(descriptors)}; {len(thread_names())} threads, there were {len(threads)}.\n"
        f"open: {_listed(paths)}\nrunning: {_listed(names)}",
        pytrace=False,
    )


def _is_within(most: list[int]) -> bool:
    """Garbage does not count, nor what ends within a moment."""
    if all(now <= limit for now, limit in zip(_open_now(), most, strict=True)):
        return True
    gc.collect()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (is_within := all(now <= limit for now, limit in zip(_open_now(), most, strict=True))):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return is_within


def _uses_spark(request: pytest.FixtureRequest) -> bool:
    ours = [item for item in request.session.items if item.path == request.path]
    return any(item.get_closest_marker("spark") for item in ours)


def _open_now() -> tuple[int, int]:
    return len(open_descriptors()), len(thread_names())


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{count} × {what}" for what, count in counted.most_common(20)) or "nothing new"
