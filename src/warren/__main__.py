"""`warren` and `python -m warren`. `warren ctl` does not load the other commands: a health check must be quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["ctl"]:
        from warren.cli.ctl.main import main as run_verb

        return run_verb(words[1:], "warren ctl")
    from warren.cli.main import main as run_command

    return run_command(words)


if __name__ == "__main__":
    sys.exit(main())
