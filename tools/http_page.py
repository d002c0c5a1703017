"""The table of routes in docs/http.md, made from the rows of `warren.management.routes`.

python -m tools.http_page          prints it
python -m tools.http_page --write  replaces it in the page
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from warren.management.routes import ROUTES

PAGE = Path(__file__).parents[1] / "docs" / "http.md"
HEAD = "| path | tag | response |\n|---|---|---|\n"
_TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)+")


def table() -> str:
    rows = (f"| `{route.method} {route.path}` | {route.rule.tag} | {route.summary} |\n" for route in ROUTES)
    return HEAD + "".join(rows)


def main() -> None:
    if "--write" in sys.argv[1:]:
        PAGE.write_text(_TABLE.sub(lambda _: table(), PAGE.read_text()))
    else:
        print(table(), end="")


if __name__ == "__main__":
    main()
