"""The picture of `warren bench snapshot --plot`: start-up, memory and disk by the number of keys.

It shows what was measured and the goals beside it: lines that stay flat while the number of keys grows a thousand times
are what the safe snapshot store is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tools.bench.measurement import Measurement
from tools.bench.snapshot.growth import size_of
from warren.base.errors import Refused

_PLOT_EXTRA = "pip install matplotlib, or make setup"


def require_matplotlib() -> None:
    """Before minutes are spent on what could not be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Refused("a picture needs matplotlib, which is not installed", _PLOT_EXTRA) from error


def draw(measurements: Iterable[Measurement], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = list(measurements)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    start, memory, disk = figure.subplots(1, 3)
    for kind, label in (("restart_clean", "after a clean stop"), ("restart_killed", "after kill -9")):
        start.plot(*series(measured, kind), marker="o", label=label)
    start.set(title="start-up, until a key is read", ylabel="seconds", ylim=(0, None))
    for kind, label in (("memory", "resident"), ("memory_anonymous", "allocated")):
        memory.plot(*series(measured, kind), marker="o", label=label)
    memory.axhline(286, color="grey", linestyle=":", label="goal, 300 MB")
    memory.set(title="memory while writing and reading", ylabel="MiB", ylim=(0, None))
    disk.plot(*series(measured, "disk"), marker="o", label="log + store")
    disk.plot(*_limits(measured), color="grey", linestyle=":", label="goal, 2.5 × live + 2 containers")
    disk.set(title="disk, overwritten 3 ×, 20 % removed", ylabel="MiB", yscale=scale(measured, "disk"))
    for axes, kind in ((start, "restart_clean"), (memory, "memory"), (disk, "disk")):
        axes.set(xscale=scale(measured, kind), xlabel="keys")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


Series = tuple[list[int], list[float]]


def series(measured: list[Measurement], kind: str) -> Series:
    found = _points(measured, kind)
    return [size for size, _ in found], [row.value for _, row in found]


def _limits(measured: list[Measurement]) -> Series:
    found = _points(measured, "disk")
    return [size for size, _ in found], [2.5 * (row.reference or 0.0) for _, row in found]


def scale(measured: list[Measurement], kind: str) -> str:
    """Logarithmic, but for an empty picture: there is no logarithm of nothing."""
    return "log" if _points(measured, kind) else "linear"


def _points(measured: list[Measurement], kind: str) -> list[tuple[int, Measurement]]:
    """The rows `kind_SIZE`, by size."""
    labelled = [(row.name.removeprefix(f"{kind}_"), row) for row in measured if row.name.startswith(f"{kind}_")]
    return sorted(((size_of(label), row) for label, row in labelled if label[0].isdigit()), key=lambda point: point[0])
