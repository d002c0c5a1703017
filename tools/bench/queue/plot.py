"""The picture of `warren bench queue --plot`: start-up and memory by the length of the backlog.

Lines that stay flat while the backlog grows two hundred times are what queues that page are for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tools.bench.measurement import Measurement
from tools.bench.snapshot.plot import scale, series


def draw(measurements: Iterable[Measurement], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = list(measurements)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    start, memory, rates = figure.subplots(1, 3)
    start.plot(*series(measured, "restart"), marker="o", label="after kill -9")
    start.axhline(2, color="grey", linestyle=":", label="goal, 2 s")
    start.set(title="from opening to the first delivery", ylabel="seconds", ylim=(0, None))
    for kind, label in (("memory", "while it is put"), ("memory_drain", "while it is got")):
        memory.plot(*series(measured, kind), marker="o", label=label)
    memory.axhline(300, color="grey", linestyle=":", label="goal")
    memory.set(title="resident memory, all processes", ylabel="MB", ylim=(0, None))
    for kind, label in (("fill", "put"), ("drain", "got and acknowledged")):
        rates.plot(*series(measured, kind), marker="o", label=label)
    rates.set(title="messages of 100 bytes a second", ylim=(0, None))
    for axes, kind in ((start, "restart"), (memory, "memory"), (rates, "fill")):
        axes.set(xscale=scale(measured, kind), xlabel="messages in the queue")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
