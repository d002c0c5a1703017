"""Arguments of queues, exchanges and bindings as JSON, whatever AMQP lets a table hold.

    JSON says it itself    null, true, 7, 1.5, "text", [ … ], { … }
    with a mark            {"!": "bytes", "value": "AAE="}            base64
                           {"!": "time", "value": 1700000000}         seconds since 1970, UTC
                           {"!": "decimal", "value": "1.50"}
                           {"!": "float", "value": "nan"}             and inf, -inf
                           {"!": "table", "value": { … }}             a table that has a key "!" itself

Always true: what comes back is what went in, its type too, and equal values have one spelling. How wide an integer was
on the wire is not kept: no queue asks. Bounds are judged here, since what is declared is replayed at every start.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from warren.base.errors import Damage, Refused

MARK = "!"
DEPTH_MAX = 32

Arguments = Mapping[str, Any]


def to_json(arguments: Arguments | None) -> dict[str, Any]:
    """A table as a JSON object; the outermost one has no mark, whatever its keys are."""
    return {_text(key): _to_json(value, 1) for key, value in (arguments or {}).items()}


def from_json(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _from_json(value) for key, value in told.items()}


def _to_json(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise Refused(f"the arguments are nested deeper than {DEPTH_MAX}", "make them flatter")
    match value:
        case None | bool() | int():
            return value
        case str():
            return _text(value)
        case float():
            return value if math.isfinite(value) else {MARK: "float", "value": str(value)}
        case bytes() | bytearray() | memoryview():
            return {MARK: "bytes", "value": base64.b64encode(value).decode()}
        case datetime() if value.tzinfo is None:
            raise Refused(f"the time {value} says nothing of its zone", "give it one: UTC")
        case datetime():
            return {MARK: "time", "value": int(value.timestamp())}
        case Decimal():
            return {MARK: "decimal", "value": str(value)}
        case list() | tuple():
            return [_to_json(each, depth + 1) for each in value]
        case Mapping():
            table = {_text(key): _to_json(each, depth + 1) for key, each in value.items()}
            return {MARK: "table", "value": table} if MARK in table else table
    raise Refused(f"an argument cannot be a {type(value).__name__}", "use what an AMQP table can hold")


def _from_json(told: Any) -> Any:
    if isinstance(told, list):
        return [_from_json(each) for each in told]
    if not isinstance(told, dict):
        return told
    if MARK not in told:
        return from_json(told)
    value = told.get("value")
    match told[MARK]:
        case "bytes":
            return base64.b64decode(str(value))
        case "time":
            return datetime.fromtimestamp(int(str(value)), UTC)
        case "decimal":
            return Decimal(str(value))
        case "float":
            return float(str(value))
        case "table" if isinstance(value, dict):
            return from_json(value)
    raise Damage(f"an argument of the catalog has the unknown mark {told[MARK]!r}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"the name of an argument is text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"{value!r} cannot be written in UTF-8", "pass it as bytes") from error
    return value
