"""A message as a row of SQL, and rows as slices.

    row   sequence, size, is_persistent, expires_ms, published_ms, exchange, routing_key, user, content kind, content

Rows that follow one another and are alike in all but size and content are one slice with a run of its own: what was
published together comes out together, though nothing in the table says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warren.base.ids import SequenceId
from warren.base.runs import Origin, Publication, Run, Slice

Row = tuple[Any, ...]

COLUMNS_BARE = "sequence, size, is_persistent, expires_ms, published_ms, exchange, routing_key, user_name, content_kind"
COLUMNS = f"{COLUMNS_BARE}, content"
SEQUENCE, SIZE, PERSISTENT, CONTENT = 0, 1, 2, 9
_TOLD = slice(2, 9)  # what is said of a message


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Which messages to look at; None: all. Texts with % and _ as SQL's LIKE has them."""

    exchange_like: str | None = None
    routing_key_like: str | None = None
    user_like: str | None = None
    published_from_ms: int | None = None
    published_before_ms: int | None = None
    expires_before_ms: int | None = None  # those that expire at all
    size_from: int | None = None
    content_has: bytes | None = None

    def condition(self) -> tuple[str, list[object]]:
        """As SQL, to be put behind another condition, and its values."""
        wanted = [
            ("exchange LIKE ?", self.exchange_like),
            ("routing_key LIKE ?", self.routing_key_like),
            ("user_name LIKE ?", self.user_like),
            ("published_ms >= ?", self.published_from_ms),
            ("published_ms < ?", self.published_before_ms),
            ("expires_ms > 0 AND expires_ms < ?", self.expires_before_ms),
            ("size >= ?", self.size_from),
            ("instr(content, ?) > 0", self.content_has),
        ]
        chosen = [(text, value) for text, value in wanted if value is not None]
        return "".join(f" AND {text}" for text, _ in chosen), [value for _, value in chosen]


def rows_of(publication: Publication, first: int, is_persistent: bool) -> list[Row]:
    p, origin = publication, publication.origin
    told = (
        int(is_persistent),
        p.expires_ms,
        p.published_ms,
        origin.exchange,
        origin.routing_key,
        origin.user,
        origin.content_kind,
    )
    return [(sequence, len(content), *told, content) for sequence, content in enumerate(p.contents, first)]


def slices_of(rows: Sequence[Row], edge: int = -1) -> list[Slice]:
    """With contents if the rows have them. None of them goes on over the sequence id `edge`."""
    slices = []
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or not _is_next(rows[at - 1], rows[at], edge):
            slices.append(_slice(rows[start:at]))
            start = at
    return slices


def _is_next(row: Row, following: Row, edge: int) -> bool:
    sequence = following[SEQUENCE]
    return sequence == row[SEQUENCE] + 1 and sequence != edge and following[_TOLD] == row[_TOLD]


def _slice(rows: Sequence[Row]) -> Slice:
    is_persistent, expires_ms, published_ms, *origin = rows[0][_TOLD]
    sizes = {row[SIZE] for row in rows}
    run = Run(
        first=SequenceId(rows[0][SEQUENCE]),
        count=len(rows),
        sizes=sizes.pop() if len(sizes) == 1 else np.array([row[SIZE] for row in rows], dtype=np.uint32),
        is_persistent=bool(is_persistent),
        expires_ms=expires_ms,
        published_ms=published_ms,
        origin=Origin(*origin),
    )
    return Slice(run, 0, len(rows), [row[CONTENT] for row in rows] if len(rows[0]) > CONTENT else None)
