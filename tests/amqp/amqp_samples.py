"""Methods, contents and frames for tests: one of each, and random ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from warren.amqp import methods
from warren.amqp.content import DIRECT_REPLY_TO, Properties
from warren.amqp.methods import MethodField, MethodSpec

_TABLE = st.dictionaries(st.text(max_size=8), st.integers(-9, 9) | st.text(max_size=8) | st.booleans(), max_size=3)
_SHORT = st.text(max_size=60)
OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, (1 << 16) - 1),
    "long": st.integers(0, (1 << 32) - 1),
    "longlong": st.integers(0, (1 << 64) - 1),
    "shortstr": _SHORT,
    "longstr": st.binary(max_size=80),
    "table": _TABLE,
}


def methods_of(spec: MethodSpec) -> st.SearchStrategy[methods.Method]:
    """A method of this kind with any fields."""
    return st.tuples(*(OF_KIND[field.kind] for field in spec.fields)).map(lambda values: spec.made_by(*values))


ANY_METHOD = st.sampled_from(list(methods.METHODS.values())).flatmap(methods_of)


def field_names(fields: tuple[MethodField, ...]) -> list[str]:
    return [field.name for field in fields]


_OPTIONAL_TEXT = st.none() | st.text(max_size=12)
PROPERTIES = st.builds(
    Properties,
    _OPTIONAL_TEXT,
    _OPTIONAL_TEXT,
    st.none() | _TABLE,
    st.none() | st.integers(0, 255),
    st.none() | st.integers(0, 255),
    _OPTIONAL_TEXT,
    _OPTIONAL_TEXT | st.sampled_from((DIRECT_REPLY_TO, DIRECT_REPLY_TO + ".x", DIRECT_REPLY_TO[:-1])),
    _OPTIONAL_TEXT,
    _OPTIONAL_TEXT,
    st.none() | st.integers(0, (1 << 64) - 1),
    _OPTIONAL_TEXT,
    _OPTIONAL_TEXT,
    _OPTIONAL_TEXT,
    _OPTIONAL_TEXT,
)
