"""Which way the hot modules run: compiled by mypyc, or as the Python they are written in.

A module is compiled if it bears the line `# mypyc: compile` (see setup.py). Both ways give the same answers; only the
speed differs, so the mode is shown wherever somebody might wonder about speed: at start, in benchmarks, by
`python -m warren.base.build`. A house test keeps the list below equal to the marks.
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
    """Compiled only if every marked module is: modules are compiled all together or not at all."""
    return "compiled" if MARKED_MODULES and all(map(is_compiled, MARKED_MODULES)) else "pure"


def is_compiled(module: str) -> bool:
    """Whether importing the module gives (or gave) machine code. The module itself is not imported for the answer."""
    spec = find_spec(module)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


if __name__ == "__main__":
    sys.stdout.write(mode() + "\n")
