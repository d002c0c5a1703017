"""Formatters of rabbitmqctl: table (tabs), json, csv, pretty_table.

    Rows       a list: columns and rows                       name<TAB>messages …     [{"name": …}, …]
    Sentence   a line of text, and facts for json                 Ping succeeded          {"message": "Ping succeeded"}
    Sections   titled sections of lines, and facts for json   status                  {"rabbitmq_version": …}
    Document   JSON itself                                    export_definitions -

Tables show values as rabbitmqctl does: `true`, `[administrator, monitoring]`, `[{"x-max-length",100}]`; nothing for a
missing value. A control character is escaped, so that a row is one line and a name cannot write to the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

FORMATTERS = ("table", "json", "csv", "pretty_table")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))} | {
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}


class Rows(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    has_header: bool = True  # in a table


class Sentence(NamedTuple):
    text: str
    facts: Mapping[str, Any] | None = None  # for json; None: {"message": text}


class Section(NamedTuple):
    title: str
    lines: Sequence[str]


class Sections(NamedTuple):
    sections: Sequence[Section]
    facts: Mapping[str, Any]


class Document(NamedTuple):
    content: Any


Result = Rows | Sentence | Sections | Document | None


def formatted(result: Result, formatter: str, has_header: bool, node: str, is_terminal: bool) -> str:
    """The text for standard output; empty for no result of a table."""
    if formatter == "json":
        return _as_json(result, node)
    match result:
        case None:
            return ""
        case Rows():
            return _listed(result, formatter, has_header and result.has_header)
        case Sentence():
            return _line(result.text)
        case Sections():
            return _page(result, is_terminal)
        case Document():
            return json.dumps(result.content, ensure_ascii=False) + "\n"


def _as_json(result: Result, node: str) -> str:
    match result:
        case None:
            return _json_line({"node": node, "result": "ok"})
        case Rows():
            rows = (dict(zip(result.columns, row, strict=True)) for row in result.rows)
            return "[\n" + "\n,".join(_json(row) for row in rows) + ("\n" if result.rows else "") + "]\n"
        case Sentence():
            return _json_line({"message": result.text} if result.facts is None else result.facts)
        case Sections():
            return _json_line(result.facts)
        case Document():
            return _json_line(result.content)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _json_line(value: Any) -> str:
    return _json(value) + "\n"


def _line(text: str) -> str:
    return f"{text}\n" if text else ""


def _listed(result: Rows, formatter: str, has_header: bool) -> str:
    if not result.rows:
        return ""
    rows = [[cell(value) for value in row] for row in result.rows]
    if formatter == "pretty_table":
        return _boxed(result.columns, rows)
    lines = [list(result.columns), *rows] if has_header else rows
    if formatter == "csv":
        return "".join(",".join('"' + value.replace('"', '""') + '"' for value in line) + "\n" for line in lines)
    return "".join("\t".join(line) + "\n" for line in lines)


def _boxed(columns: Sequence[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]

    def rule(first: str, between: str, last: str) -> str:
        return first + between.join("─" * (width + 2) for width in widths) + last + "\n"

    def line(values: Iterable[str]) -> str:
        return "│" + "│".join(f" {value:<{width}} " for value, width in zip(values, widths, strict=True)) + "│\n"

    body = rule("├", "┼", "┤").join(map(line, [columns, *rows]))
    return rule("┌", "┬", "┐") + body + rule("└", "┴", "┘")


def _page(page: Sections, is_terminal: bool) -> str:
    parts = []
    for title, lines in page.sections:
        shown = f"{_BOLD}{title}{_PLAIN}" if is_terminal else title
        parts.append("\n".join([shown, "", *lines]) if title else "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def cell(value: Any) -> str:
    """A value as text of a table."""
    match value:
        case None:
            return ""
        case str():
            return value.translate(_ESCAPED)
        case list():
            return "[" + ", ".join(map(cell, value)) + "]"
    return _term(value)


def _term(value: Any) -> str:
    """A value inside of an Erlang term, as rabbitmqctl shows it."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            pairs = (f'{{"{str(key).translate(_ESCAPED)}",{_term(each)}}}' for key, each in value.items())
            return "[" + ",".join(pairs) + "]"
        case list():
            return "[" + ",".join(map(_term, value)) + "]"
        case str():
            return '"' + value.translate(_ESCAPED) + '"'
        case None:
            return "undefined"
    return str(value)
