"""Results of walks over exchanges, kept until a row of an exchange on the way changes.

    keep((exchange, key), result, visited)        forget(exchange) ──▶ results whose walk visited it

A change of rows costs what it touches: results that visited the exchange. The default exchange has one row for each
queue, and a walk with a key asks for one of them: `forget_key` drops the results of that key, and those of any key.

Always true: a result is kept only together with all exchanges that its walk visited. The number of results is bounded:
keys may be random.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Generic, NamedTuple, TypeVar

from warren.base.ids import ExchangeId

REMEMBERED_MAX: Final = 16_384

Result = TypeVar("Result")
Way = tuple[ExchangeId, str | None]  # where a walk begins, and by which routing key; None: by any


class _CachedMatch(NamedTuple, Generic[Result]):
    result: Result
    visited: Collection[ExchangeId]
    key: str | None  # the one that the walk asked exchanges for; None: any


class MatchCache(Generic[Result]):
    __slots__ = ("_found", "_through")

    def __init__(self) -> None:
        self._found: dict[Way, _CachedMatch[Result]] = {}
        self._through: dict[
            ExchangeId, dict[str | None, set[Way]]
        ] = {}  # by exchange visited, and by `_CachedMatch.key`

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, way: Way) -> bool:
        return way in self._found

    def get(self, way: Way) -> Result | None:
        kept = self._found.get(way)
        return None if kept is None else kept.result

    def keep(self, way: Way, result: Result, visited: Collection[ExchangeId], is_any: bool = False) -> None:
        """`is_any`: the walk followed bindings of any routing key, whatever its own is."""
        if len(self._found) >= REMEMBERED_MAX:
            self._found.clear()
            self._through.clear()
        key = None if is_any else way[1]
        self._found[way] = _CachedMatch(result, visited, key)
        for exchange in visited:
            self._through.setdefault(exchange, {}).setdefault(key, set()).add(way)

    def forget(self, exchange: ExchangeId) -> None:
        """A binding from this exchange, or the exchange itself, has changed."""
        for ways in list(self._through.get(exchange, {}).values()):
            self._drop(ways)

    def forget_key(self, exchange: ExchangeId, routing_key: str) -> None:
        """What this exchange does with this routing key has changed."""
        by_key = self._through.get(exchange, {})
        for key in (routing_key, None):
            self._drop(by_key.get(key, ()))

    def update_any(self, exchange: ExchangeId, update: Callable[[Result], Result]) -> None:
        """Change the results of walks that began with any key and visited this exchange; forget the others."""
        for ways in list(self._through.get(exchange, {}).values()):
            self._drop([way for way in ways if way[1] is not None])
        for way in self._through.get(exchange, {}).get(None, ()):
            kept = self._found[way]
            self._found[way] = kept._replace(result=update(kept.result))

    def _drop(self, ways: Collection[Way]) -> None:
        for way in list(ways):
            _, visited, key = self._found.pop(way)
            for exchange in visited:
                by_key = self._through[exchange]
                by_key[key].remove(way)
                if not by_key[key]:
                    del by_key[key]
                if not by_key:
                    del self._through[exchange]
