"""The picture of the backlog is drawn of whatever was measured."""

from __future__ import annotations

from pathlib import Path

from tests.tools.bench.test_bench_snapshot import PNG
from tools.bench.measurement import Measurement
from tools.bench.queue.plot import draw
from tools.bench.snapshot.plot import series


def measured(name: str, value: float) -> Measurement:
    return Measurement(name, value, "s", None, None, None, True)


def test_a_picture_is_drawn_of_many_rows_or_few(tmp_path: Path) -> None:
    kinds = ("restart", "memory", "memory_drain", "fill", "drain")
    rows = [measured(f"{kind}_{size}", 1.0) for kind in kinds for size in ("100k", "1m", "20m")]
    draw([*rows, measured("backlog_restart", 2.0)], tmp_path / "all.png")
    draw(rows[:1], tmp_path / "one.png")
    draw([], tmp_path / "none.png")
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.iterdir())


def test_memory_while_it_is_got_is_not_taken_for_memory_while_it_is_put() -> None:
    rows = [measured("memory_drain_1m", 7.0), measured("memory_1m", 5.0), measured("memory_100k", 4.0)]
    assert series(rows, "memory") == ([100_000, 1_000_000], [4.0, 5.0])
    assert series(rows, "memory_drain") == ([1_000_000], [7.0])
