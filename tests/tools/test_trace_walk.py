"""The trace walk: entries are recorded, timers are left out, and a publish touches no more files than allowed."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.house.source_tree import plant
from tools.trace_walk import Step, Walk, as_json, main, roots_of, trace, walk_of
from tools.traced_process import Entry, Recorder, SourceFinder

PUBLISH_FILES_MAX = 40  # 68 before the redesign

SHOP = {
    "shop/__init__.py": "",
    "shop/till.py": (
        "from shop import prices\n"
        "class Till:\n    def sell(self):\n        return sorted(range(2), key=lambda item: prices.price(item))\n"
    ),
    "shop/prices.py": (
        "def register(function):\n    return function\n"
        "@register\ndef price(item):\n    return item\n"
        "def tick():\n    price(1)\n"
    ),
    "door.py": "def enter(function):\n    return function()\n",
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two files, and a library beside it."""
    plant(tmp_path, SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "shop"
    for name in ("shop", "shop.till", "shop.prices", "door"):
        sys.modules.pop(name, None)


def record(package: Path, act: Callable[[], Any]) -> list[Entry]:
    """In a thread of its own: a profile function of this one (coverage) stays as it is."""
    recorder = Recorder(package)

    def run() -> None:
        recorder.start()
        sys.setprofile(recorder.profile)
        try:
            act()
        finally:
            sys.setprofile(None)

    thread = threading.Thread(target=run, name="counter")
    thread.start()
    thread.join()
    return recorder.stop()


def sell() -> None:
    import_module("door").enter(import_module("shop.till").Till().sell)


def test_functions_are_recorded_in_order_with_caller_and_root(shop: Path) -> None:
    entries = record(shop, sell)
    assert [(entry.file, entry.function, entry.caller) for entry in entries] == [
        ("till.py", "Till.sell", ""),
        ("till.py", "Till.sell.<locals>.<lambda>", "till.py"),
        ("prices.py", "price", "till.py"),
    ]
    assert roots_of(entries) == {"till.py:Till.sell"}
    assert {entry.thread for entry in entries} == {"counter"}


def test_functions_called_by_an_import_are_not_recorded(shop: Path) -> None:
    assert "register" not in [entry.function for entry in record(shop, sell)]


def test_nothing_is_recorded_after_stop(shop: Path) -> None:
    recorder = Recorder(shop)
    recorder.start()
    recorder.stop()
    recorder.profile(sys._getframe(), "call", None)
    assert not recorder.stop()


def test_a_frame_that_ran_before_the_recording_is_no_root(shop: Path) -> None:
    recorder = Recorder(shop)

    def act() -> None:
        prices = import_module("shop.prices")
        recorder.start()
        sys.setprofile(recorder.profile)
        prices.price(1)
        prices.tick()
        sys.setprofile(None)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    roots = [(entry.function, entry.root) for entry in recorder.stop()]
    assert roots == [("price", "prices.py:price"), ("tick", "prices.py:tick"), ("price", "prices.py:tick")]


def test_sources_are_found_beside_compiled_modules(tmp_path: Path) -> None:
    plant(tmp_path, {"shop/__init__.py": "", "shop/till.py": "", "shop/till.cpython-311-x86_64-linux-gnu.so": ""})
    spec = SourceFinder("shop").find_spec("shop.till", [str(tmp_path / "shop")])
    assert spec is not None
    assert spec.origin == str(tmp_path / "shop" / "till.py")


def test_other_packages_are_found_as_usual() -> None:
    assert SourceFinder("shop").find_spec("shopping", []) is None


def entry(file: str, caller: str = "", root: str = "a.py:receive", function: str = "f") -> Entry:
    return Entry(file, function, "MainThread", caller, root)


def test_a_file_counts_if_most_runs_enter_it() -> None:
    runs = [
        [entry("a.py"), entry("b.py", "a.py")],
        [entry("a.py"), entry("b.py", "a.py")],
        [entry("a.py"), entry("c.py")],
    ]
    assert walk_of("publish", runs).files == ["a.py", "b.py"]


def test_the_spine_has_the_files_that_call_others() -> None:
    walk = walk_of("publish", [[entry("a.py"), entry("b.py", "a.py"), entry("b.py", "b.py"), entry("c.py", "b.py")]])
    assert walk.spine == ["a.py", "b.py"]


def test_work_of_timers_is_left_out() -> None:
    run = [entry("timer.py", root="timer.py:tick"), entry("b.py", "timer.py", "timer.py:tick"), entry("a.py")]
    assert walk_of("publish", [run], frozenset({"timer.py:tick"})).files == ["a.py"]


def test_a_walk_is_printed_with_count_order_function_and_thread() -> None:
    steps = (Step("a.py", "receive", "MainThread", True), Step("b.py", "write", "warren-commit", False))
    assert str(Walk("publish", steps)).splitlines() == [
        "publish: 2 files touched, 1 in the spine (*)",
        "   1 * a.py  receive  MainThread",
        "   2   b.py  write    warren-commit",
    ]
    assert as_json(Walk("publish", steps))["touched"] == 2


def test_an_unknown_operation_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--operation", "sell"])
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.slow
def test_a_start_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--operation", "start", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["start"]
    assert printed["touched"] == len(printed["steps"]) > printed["spine"] > 0


@pytest.mark.slow
def test_a_publish_touches_few_files() -> None:
    walk = trace("publish")
    assert {step.thread for step in walk.steps} > {"MainThread"}, f"the commit is not on the walk\n{walk}"
    assert len(walk.files) <= PUBLISH_FILES_MAX, f"more than {PUBLISH_FILES_MAX} files\n{walk}"
