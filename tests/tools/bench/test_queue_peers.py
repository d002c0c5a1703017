"""The queues we stand beside do what the benchmark takes them to do, and sync as it says they do."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tools.bench.queue.bodies import LARGE_BYTES, SMALL_BYTES, bodies
from tools.bench.queue.contenders import Budget, Contender, speeds
from tools.bench.queue.peers import NOT_SYNCED, PEER_NAMES, PEERS, SYNCED, require_peers
from warren.base.errors import Refused

FULL, NORMAL = 2, 1  # of SQLite's synchronous


@pytest.mark.parametrize("make", PEERS)
@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_each_gives_back_in_order_what_it_was_given(
    tmp_path: Path, make: Callable[[Path], Contender], size_bytes: int
) -> None:
    with closing(make(tmp_path / "peer")) as contender:
        measured = speeds(contender, Budget(40, 60.0), size_bytes)
        assert min(measured.put_best, measured.get_best) > 0
        left = len(contender.get_many(100)) if contender.together > 1 else 0
        assert contender.get() is None and left == 0, "it is empty, and says so"


@pytest.mark.parametrize("make", PEERS[1:])  # by hand the table is made anew
def test_what_was_put_is_there_when_it_is_opened_again(tmp_path: Path, make: Callable[[Path], Contender]) -> None:
    with closing(make(tmp_path / "peer")) as contender:
        contender.put_many(bodies(0, 3))
        assert contender.get() == bodies(0, 1)[0]
    with closing(make(tmp_path / "peer")) as contender:
        assert contender.get() == bodies(1, 1)[0], "what was acknowledged does not come again"


def test_names_are_those_of_the_rows() -> None:
    assert PEER_NAMES == ("sqlite", "persist_queue", "litequeue", "diskcache")


@pytest.mark.parametrize("make", PEERS)
def test_each_syncs_as_it_is_said_to(tmp_path: Path, make: Callable[[Path], Contender]) -> None:
    with closing(make(tmp_path / "peer")) as contender:
        [connection] = _connections(contender)
        [mode] = connection.execute("PRAGMA journal_mode").fetchone()
        [synchronous] = connection.execute("PRAGMA synchronous").fetchone()
        assert mode == "wal"
        assert (contender.promise, synchronous) in ((SYNCED, FULL), (NOT_SYNCED, NORMAL))


def _connections(contender: object) -> list[sqlite3.Connection]:
    """The one that a contender writes through, wherever it keeps it."""
    inner = getattr(contender, "_queue", contender)
    inner = getattr(getattr(inner, "_deque", None), "cache", inner)
    found = [getattr(inner, name, None) for name in ("_connection", "_putter", "conn", "_con")]
    return [each for each in found if isinstance(each, sqlite3.Connection)]


def test_without_the_others_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    require_peers()
    monkeypatch.setitem(sys.modules, "litequeue", None)
    with pytest.raises(Refused, match="nothing to compare with"):
        require_peers()
