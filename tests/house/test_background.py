"""Everything that runs without a caller to raise to is under the policy of `base/threads`.

A thread that dies of an unexpected exception dies in silence, and whatever waits for it waits for ever. So each module
that starts a thread, a timer, a callback of the loop or a call in a pool is listed here, with what becomes of an
exception in it. A module that is not listed fails, and so does an entry for which there is nothing left.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source_tree import SRC, Module, modules_under, plant

TASK = "BackgroundTask"  # the module must use one
LOOP = "the exception handler of the loop (app/lifecycle) raises the alarm `event-loop`"
CALLER = "the exception is raised in the thread that waits for the result"

POLICY: dict[str, str] = {
    "embedded/database.py": "awaited by the caller",
    "app/control.py": CALLER,
    "app/lifecycle.py": "any exception of the watching task ends the process",
    "embedded/queues_async.py": "a future or an event of the caller's own loop; a closed loop is handled",
    "base/threads.py": "`BackgroundLoop` runs a BackgroundTask; `together` raises in its caller",
    "broker/confirms.py": TASK,
    "broker/queue_handle.py": TASK,
    "broker/timers.py": TASK,
    "broker/vhost.py": "callbacks of `Timers`, which runs them in its BackgroundTask",
    "broker/garbage.py": TASK,
    "durability/group_commit.py": "any exception ends the commit for good, and so the process",
    "log/merge/external.py": CALLER,
    "log/compaction/control.py": TASK,
    "log/read/scan.py": CALLER,
    "management/application.py": "awaited: a request that fails is answered with 500",
    "management/http_server.py": LOOP,
    "management/metrics.py": "awaited: a request that fails is answered with 500",
    "management/statistics.py": TASK,
    "message_store/collector.py": TASK,
    "server/server.py": f"{LOOP}; results of the pool go to a callback with their exception",
    "server/alarms.py": TASK,
    "server/connection.py": LOOP,
    "server/vhost_loop.py": LOOP,
    "snapshot/database.py": TASK,
    "snapshot/puller/process.py": "any exception of a thread ends its process, which is an alarm and is started again",
    "snapshot/puller/client.py": TASK,  # and an exception of the listening thread kills the puller: alarm and restart
    "snapshot/reflection.py": TASK,
    "workers/control_socket.py": TASK,
    "workers/process.py": "ends its process",
}
TOOLS = ("testing/", "cli/")  # their exit is seen by the operator or a test
TIMERS = {
    *("call_later", "call_at", "call_soon", "call_soon_threadsafe", "add_done_callback"),
    *("create_task", "ensure_future", "run_in_executor", "to_thread", "run_coroutine_threadsafe"),
}


def starts(module: Module) -> Iterator[int]:
    """Lines that begin something whose exceptions have no caller."""
    uses_pools = "concurrent.futures" in module.text
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        is_thread = name == "Thread" or (name == "start" and len(node.args) == 2 and _is_text(node.args[0]))
        if is_thread or name in TIMERS or (name == "submit" and uses_pools):
            yield node.lineno


def _is_text(node: ast.expr) -> bool:
    """A thread is started with its name and its body; other things are started with neither."""
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_constant or isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Name) and node.id == "name")


def offences(src: Path) -> list[str]:
    found = {module.place: (module, list(starts(module))) for module in modules_under(src)}
    own = {place: each for place, each in found.items() if not place.startswith(TOOLS) and each[1]}
    errors = [f"{place}:{lines[0]} is not in POLICY" for place, (_, lines) in own.items() if place not in POLICY]
    errors += [
        f"{place}:{lines[0]} starts something and uses no {TASK}"
        for place, (module, lines) in own.items()
        if POLICY.get(place) == TASK and ".task(" not in module.text
    ]
    return errors


def test_everything_that_runs_in_the_background_is_under_the_policy() -> None:
    assert not offences(SRC)


def test_the_list_names_nothing_that_is_gone() -> None:
    starting = {module.place for module in modules_under(SRC) if any(starts(module))}
    assert not set(POLICY) - starting


@pytest.mark.parametrize(
    "line",
    [
        'def f(threads):\n    threads.start("warren-new", print)',
        "def f(threads):\n    threads.start(f'new-{1}', print)",
        "import threading\nthreading.Thread(target=print).start()",
        "def f(loop):\n    loop.call_later(1, print)",
        "def f(loop):\n    loop.call_soon_threadsafe(print)",
        "from concurrent.futures import Executor\ndef f(pool: Executor):\n    pool.submit(print)",
        "import asyncio\nasyncio.create_task(f())",
    ],
)
def test_a_new_start_outside_the_list_is_found(tmp_path: Path, line: str) -> None:
    assert offences(plant(tmp_path, {"warren/log/new.py": line})) == [f"log/new.py:{_first(line)} is not in POLICY"]


def _first(line: str) -> int:
    return len(line.splitlines())


def test_a_listed_module_without_a_task_is_found(tmp_path: Path) -> None:
    line = 'def f(threads):\n    threads.start("warren-upkeep", print)'
    [offence] = offences(plant(tmp_path, {"warren/broker/garbage.py": line}))
    assert "uses no BackgroundTask" in offence


def test_what_starts_nothing_is_not_blamed(tmp_path: Path) -> None:
    line = "def f(queues, server):\n    queues.start(1)\n    server.start()\n    queues.submit(print)"
    assert not offences(plant(tmp_path, {"warren/log/new.py": line}))
