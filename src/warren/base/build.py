"""Build mode: whether the hot modules are compiled by mypyc or run as pure Python.

A module is compiled if it has the line `# mypyc: compile` (see setup.py). Results are the same in both modes; only the
speed differs. The mode is shown at start, in benchmarks, and by `python -m warren.base.build`. A house test keeps the
list below equal to the marks.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final, Literal

Mode = Literal["compiled", "pure"]

MARKED_MODULES: Final[tuple[str, ...]] = (
    "warren.amqp.kernels",
    "warren.records.small_blocks",
)


def mode() -> Mode:
    """Compiled only if every marked module is: either all modules are compiled or none."""
    return "compiled" if MARKED_MODULES and all(map(is_compiled, MARKED_MODULES)) else "pure"


def is_compiled(module: str) -> bool:
    """Whether importing the module loads (or loaded) machine code. Does not import it."""
    spec = find_spec(module)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


if __name__ == "__main__":
    sys.stdout.write(mode() + "\n")
