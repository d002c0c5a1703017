"""Rewrite the allow-list of the shape rules: python -m tests.house.shrink_allowed [--renamed]

Without an option entries are only removed or lowered. With `--renamed`, after a script has renamed or moved what an
entry names, the entries are those of today's tree, provided that no rule has more places in total than before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.house.shape import ALLOWED, all_findings, beyond_allowed, read_allowed, renamed, shrunk, write_allowed
from tests.house.source_tree import ROOT


def main(arguments: Sequence[str], root: Path = ROOT, path: Path = ALLOWED) -> int:
    found, before = all_findings(root), read_allowed(path)
    try:
        after = (renamed if "--renamed" in arguments else shrunk)(found, before)
    except ValueError as error:
        print(f"allow-list unchanged: {error}", file=sys.stderr)
        return 1
    write_allowed(after, path)
    for rule, keys in after.items():
        print(f"{sum(before.get(rule, {}).values()):6d} → {sum(keys.values()):6d}  {rule}")
    rest = beyond_allowed(found, after)
    for line in rest:
        print(f"not allowed: {line}", file=sys.stderr)
    return 1 if rest else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
