"""`warren.open(path).kv(name)`: a mapping that is durable and sorted, on a real disk with a real RocksDB."""

from __future__ import annotations

import asyncio
import doctest
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import warren
import warren.embedded.database
from warren.base.errors import Locked, Misuse
from warren.embedded.database import Warren
from warren.snapshot.reflection import Mode, ReflectionSettings

KEYS = st.sampled_from([b"", b"a", b"a\0", b"ab", b"b", b"\xff", b"\xff\xff", b"key" * 30])
TINY = ReflectionSettings(lag_seconds=0.0, step_bytes=400, chunk_bytes=300, buffer_bytes=4000, flush_bytes=2000)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Warren]:
    with warren.open(str(tmp_path / "db")) as opened:
        yield opened


def test_the_page_of_the_module_is_true() -> None:
    tried = doctest.testmod(warren.embedded.database)
    assert (tried.failed, tried.attempted) == (0, 2)


def test_a_storage_is_a_mapping(db: Warren) -> None:
    users = db.kv("users")
    users[b"ada"] = b"countess"
    users.put_many({b"alan": b"baker", b"grace": b"admiral"})
    users.update({b"linus": b"student"})
    assert users[b"ada"] == users.get(b"ada") == b"countess"
    assert users.get(b"missing") is None
    assert users.get_many([b"grace", b"missing", b"ada"]) == [b"admiral", None, b"countess"]
    assert (b"ada" in users, b"missing" in users) == (True, False)
    assert (list(users), len(users), bool(users)) == ([b"ada", b"alan", b"grace", b"linus"], 4, True)
    assert list(reversed(users)) == [b"linus", b"grace", b"alan", b"ada"]
    del users[b"ada"]
    users.discard(b"grace", b"missing")
    assert dict(users) == {b"alan": b"baker", b"linus": b"student"}
    assert users.pop(b"alan") == b"baker"
    with pytest.raises(KeyError):
        users[b"alan"]
    with pytest.raises(KeyError):
        del users[b"alan"]
    users.clear()
    assert (dict(users), bool(users)) == ({}, False)


def test_ranges_and_prefixes_come_in_key_order(db: Warren) -> None:
    numbers = db.kv("numbers")
    numbers.put_many((b"%03d" % number, b"%d" % number) for number in range(300))
    assert [value for _, value in numbers.range(b"010", b"013")] == [b"10", b"11", b"12"]
    assert [key for key, _ in numbers.range(b"298", reverse=True)] == [b"299", b"298"]
    assert len(list(numbers.prefix(b"1"))) == 100
    assert next(numbers.prefix(b"1", reverse=True))[0] == b"199"


def test_storages_with_different_names_do_not_meet(db: Warren) -> None:
    one, other = db.kv("one"), db.kv("other")
    one[b"key"] = b"1"
    other[b"key"] = b"2"
    assert (one[b"key"], db.kv("one")[b"key"], other[b"key"]) == (b"1", b"1", b"2")
    assert one.storage != other.storage
    assert db.names() == ["one", "other"]
    one.clear()
    assert (len(one), len(other)) == (0, 1)


def test_a_conditional_put_happens_once_under_contention(db: Warren) -> None:
    counter = db.kv("counter")
    counter[b"n"] = b"0"

    def count() -> None:
        done = 0
        while done < 10:
            seen = counter[b"n"]
            done += counter.put_if(b"n", b"%d" % (int(seen) + 1), expected=seen)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter[b"n"] == b"40"
    assert counter.put_if(b"new", b"1", expected=None)
    assert not counter.put_if(b"new", b"2", expected=None)


def test_a_snapshot_stays_as_it_was(db: Warren) -> None:
    users = db.kv("users")
    users[b"ada"] = b"1"
    with db.snapshot() as moment:
        before = moment.kv("users")
        users[b"ada"] = b"2"
        users[b"alan"] = b"3"
        assert dict(before) == {b"ada": b"1"}
        assert not hasattr(before, "put")
        with pytest.raises(KeyError):
            moment.kv("unknown")
    walk = users.range()
    assert next(walk) == (b"ada", b"2")
    users.discard(b"alan")
    assert list(walk) == [(b"alan", b"3")]


def test_coroutines_use_the_same_storage(db: Warren) -> None:
    async def use() -> list[bytes]:
        events = db.akv("events")
        await asyncio.gather(*(events.put(b"%04d" % number, b"x") for number in range(30)))
        await events.put_many((b"%04d" % number, b"y") for number in range(1000, 2000))
        assert await events.get(b"0007") == b"x"
        assert await events.get_many([b"1500", b"missing"]) == [b"y", None]
        assert not await events.put_if(b"0007", b"z", expected=None)
        await events.discard(b"0007")
        return [key async for key, _ in events.range(b"0005")] + [key async for key, _ in events.prefix(b"199")]

    found = asyncio.run(use())
    assert found[:3] == [b"0005", b"0006", b"0008"]
    assert len(found) == 24 + 1000 + 10
    asyncio.run(db.akv("events").clear())
    assert not db.kv("events")


def test_what_was_written_is_there_after_a_stop(tmp_path: Path) -> None:
    for turn in range(3):
        with warren.open(str(tmp_path)) as db:
            users = db.kv("users")
            assert len(users) == turn
            users[b"turn %d" % turn] = b"value"
            with pytest.raises(Locked):
                warren.open(str(tmp_path))


WAYS = ["notify", "tables", "push", "push-threaded", "watch", "spark"]  # `tables`: notify, and everything by a worker


@pytest.mark.parametrize("way", WAYS)
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, way: str) -> None:
    """X-03: SIGKILL at any moment, six times on one directory; by then the log has gone behind the flushed mark."""
    acknowledged = 0
    for _ in range(6):
        command = [sys.executable, "-c", _CHILD, str(tmp_path), way, str(acknowledged)]
        handle = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert handle.stdout is not None
        for _ in range(25):
            acknowledged = int(handle.stdout.readline())
        os.kill(handle.pid, signal.SIGKILL)
        rest = handle.communicate()[0].splitlines()
        acknowledged = int(rest[-1]) if rest and rest[-1].isdigit() else acknowledged
        with warren.open(str(tmp_path)) as db:
            stored = {int(key) for key in db.kv("numbers")}
            assert set(range(acknowledged + 1)) <= stored, "everything that was acknowledged is there"
            assert len(stored) <= acknowledged + 3
            acknowledged = max(stored)
            assert db.database.store.applied.epoch <= db.database.log.durable


_CHILD = """
import sys, warren
from warren.snapshot.reflection import Mode
from warren.snapshot.reflection import ReflectionSettings
from warren.log.settings import LogSettings
mode, bulk_bytes = (Mode.NOTIFY, 1) if sys.argv[2] == "tables" else (Mode(sys.argv[2]), 4000)
tiny = dict(lag_seconds=0.0, step_bytes=2000, flush_seconds=0.02, flush_bytes=4000)
tiny = ReflectionSettings(mode, bulk_bytes=bulk_bytes, **tiny)
log = LogSettings(retention_seconds=0, retention_bytes=0, compaction_poll_seconds=0.02, rotate_bytes=1 << 20)
db = warren.open(sys.argv[1], reflection=tiny, log_settings=log)
numbers = db.kv("numbers")
number = int(sys.argv[3])
while True:
    numbers[b"%d" % number] = b"x" * 100
    print(number, flush=True)
    number += 1
    if number % 20 == 0:
        db.database.log.rotate()
"""


def test_bad_input_is_reported(db: Warren, tmp_path: Path) -> None:
    users = db.kv("users")
    asks: list[Callable[[], Any]] = [
        lambda: users["ada"],  # type: ignore[index]
        lambda: users.put("ada", b"1"),  # type: ignore[arg-type]
        lambda: users.put(b"ada", 1),  # type: ignore[arg-type]
    ]
    for ask in asks:
        with pytest.raises(Misuse, match="bytes"):
            ask()
    with pytest.raises(Misuse, match="limit"):
        users[b"large"] = b"x" * (1 << 20)
    with pytest.raises(Misuse, match="name has 1"):
        db.kv("")
    assert dict(users) == {}


@settings(max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
class AgainstADict(RuleBasedStateMachine):
    """SS-01: a storage says what a dict says, over stops, with limits so tiny that everything spills and flushes."""

    @initialize(mode=st.sampled_from([Mode.NOTIFY, Mode.PUSH, Mode.PUSH_THREADED, Mode.SPARK]))
    def begin(self, mode: Mode) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.reflection = ReflectionSettings(mode, **{name: getattr(TINY, name) for name in _TUNED})
        self.model: dict[bytes, bytes] = {}
        self.open()

    def open(self) -> None:
        self.db = warren.open(self.home.name, reflection=self.reflection)
        self.kv = self.db.kv("kv")

    @rule(key=KEYS, value=st.binary(max_size=50))
    def put(self, key: bytes, value: bytes) -> None:
        self.kv[key] = value
        self.model[key] = value

    @rule(pairs=st.dictionaries(KEYS, st.binary(max_size=200), max_size=5))
    def put_many(self, pairs: dict[bytes, bytes]) -> None:
        self.kv.put_many(pairs)
        self.model |= pairs

    @rule(key=KEYS)
    def discard(self, key: bytes) -> None:
        self.kv.discard(key)
        self.model.pop(key, None)

    @rule()
    def clear(self) -> None:
        self.kv.clear()
        self.model.clear()

    @rule(is_clean=st.booleans())
    def again(self, is_clean: bool) -> None:
        if is_clean:
            self.db.close()
        else:
            self.kill()
        self.open()

    def kill(self) -> None:
        """As if the process had ended."""
        assert self.db._control is not None
        self.db._control.close()
        self.db.database.abandon()
        self.db.database.store.close()

    @invariant()
    def says_the_same(self) -> None:
        if hasattr(self, "kv"):
            assert list(self.kv.items()) == sorted(self.model.items())

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
            self.home.cleanup()


_TUNED = ("lag_seconds", "step_bytes", "chunk_bytes", "buffer_bytes", "flush_bytes")
TestAgainstADict = AgainstADict.TestCase


def test_retention_is_a_setting_of_open(tmp_path: Path) -> None:
    """What is in the store leaves the log, at once without retention and not at all with it."""
    for name, seconds, is_kept in (("kept", 3600.0, True), ("gone", 0.0, False)):
        with warren.open(str(tmp_path / name), retention_seconds=seconds, retention_bytes=1 << 30) as db:
            db.kv("users")[b"ada"] = b"countess"
            db.database.log.rotate()
            db.database.settle()
            assert db.database.reflection is not None
            db.database.reflection.flush()
            db.database.log.purge()
            assert bool(list((tmp_path / name / "log").glob("pwal_0000.*"))) == is_kept
