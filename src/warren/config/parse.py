"""Text of an option to its value, and the lines of rabbitmq.conf.

A parser raises `Misuse` with what is wrong and a hint; its caller adds the place: flag, variable, or file and line.

    1073741824    1GB = 1,000,000,000    1GiB = 1G = 1,073,741,824    case does not matter, nor does a space

Sizes are written as in RabbitMQ: a letter alone is binary. rabbitmq.conf has lines of `key = value`, as sysctl does:

    # a comment                                 to the end of the line, also after a value
    listeners.tcp.default = 5672
    default_pass = 'with # and spaces '         between single quotes every character counts
    auth_mechanisms.1 = PLAIN                   a list

A path is a file, or a directory whose `*.conf` are read in the order of their names. Of a repeated key the last line
counts. A line that is not `key = value` is refused with its number. Meaning of the keys: `options`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from warren.base.errors import Misuse, Refused
from warren.files.protocol import Files, join


@dataclass(frozen=True, slots=True)
class Parser:
    """Reads the text of one kind of value. `metavar` stands for the value in `--help`."""

    read: Callable[[str], Any]
    metavar: str

    def __call__(self, value: str) -> Any:
        return self.read(value)


def parser(metavar: str) -> Callable[[Callable[[str], Any]], Parser]:
    return lambda read: Parser(read, metavar)


LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_NAMES = {"notice": "info", "none": "critical", "alert": "critical", "emergency": "critical"} | {
    level: level for level in LOG_LEVELS
}
_TRUE, _FALSE = ("true", "on", "yes"), ("false", "off", "no", "none")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(ib?|b)?|b)?", re.IGNORECASE | re.ASCII)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
SIZE_MAX = 1 << 60


@parser("TEXT")
def text(value: str) -> str:
    return value


@parser("NAME")
def name(value: str) -> str:
    if not value:
        raise Misuse("it is empty", "write a name")
    return value


@parser("NAME|none")
def name_or_none(value: str) -> str:
    """Empty for `none`."""
    return "" if value.lower() == "none" else str(name(value))


@parser("PATH")
def path(value: str) -> str:
    return str(name(value))


@parser("NAME,…")
def names(value: str) -> tuple[str, ...]:
    """`ann,bob`; `none` is an empty list."""
    if value.lower() == "none":
        return ()
    return tuple(dict.fromkeys(name(part.strip()) for part in value.split(",")))


def names_of(*known: str) -> Parser:
    """A list of some of these."""

    @parser(",".join(known))
    def read(value: str) -> tuple[str, ...]:
        return tuple(one_of(*known)(each) for each in names(value))

    return read


@parser("REGEX")
def pattern(value: str) -> str:
    """Names of queues and exchanges that match; an empty pattern permits nothing."""
    from warren.broker.auth.permissions import check_patterns

    try:
        check_patterns(value)
    except Refused as error:
        raise Misuse(error.what, error.hint or "a regular expression, like ^shop-") from error
    return value


def one_of(*known: str) -> Parser:
    @parser("|".join(known))
    def read(value: str) -> str:
        if value not in known:
            raise Misuse(f"{value[:40]!r} is not one of {', '.join(known)}", "choose one of these")
        return value

    return read


def whole(least: int, most: int) -> Parser:
    @parser("N")
    def read(value: str) -> int:
        number = int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else -1
        if not least <= number <= most:
            raise Misuse(f"{value[:40]!r} is no number from {least} to {most}", "write digits only")
        return number

    return read


port = Parser(whole(0, 65_535), "PORT")


@parser("PORT|none")
def port_or_none(value: str) -> int | None:
    return None if value.lower() == "none" else int(port(value))


@parser("SECONDS")
def seconds(value: str) -> float:
    return _decimal(value, 0.0, 1e9, "are no seconds", "a number, like 10 or 0.5")


def _decimal(value: str, least: float, most: float, wrong: str, hint: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number < most:
        raise Misuse(f"{value[:40]!r} {wrong}", hint)
    return number


@parser("MS")
def milliseconds(value: str) -> float:
    """In seconds."""
    return float(whole(1, 1 << 40)(value)) / 1000


@parser("SHARE")
def share(value: str) -> float:
    """`0.4`: two fifths."""
    number = _decimal(value, 0.0, 10.0001, "is no share", "a number like 0.4")
    if number == 0.0:
        raise Misuse(f"{value[:40]!r} is no share", "a number like 0.4")
    return number


@parser("RATIO")
def ratio(value: str) -> float:
    return _decimal(value, 0.0, 1.0001, "is not from 0 to 1", "a number like 0.5")


@parser("true|false")
def truth(value: str) -> bool:
    if value.lower() not in _TRUE + _FALSE:
        raise Misuse(f"{value[:40]!r} is neither true nor false", "write one of these two")
    return value.lower() in _TRUE


@parser("|".join(LOG_LEVELS))
def log_level(value: str) -> str:
    """One of Python's levels; RabbitMQ's others become the next higher one."""
    level = _LEVEL_NAMES.get(value.lower())
    if level is None:
        raise Misuse(f"{value[:40]!r} is no log level", f"{', '.join(LOG_LEVELS)}")
    return level


@parser("text|json")
def log_format(value: str) -> str:
    """RabbitMQ calls lines of text `plaintext`."""
    return str(one_of("text", "json")("text" if value == "plaintext" else value))


@parser("[HOST:]PORT")
def listener(value: str) -> tuple[str | None, int]:
    """`5672`, `127.0.0.1:5672`, `[::1]:5672`, `:::5672`: an address, if there is one, and a port."""
    host, colon, digits = value.rpartition(":")
    return (host.removeprefix("[").removesuffix("]") if colon else None), port(digits)


@parser("[HOST:]PORT,…")
def listeners(value: str) -> tuple[tuple[str, int], ...]:
    """`5671,127.0.0.1:5673`; `none` is an empty list."""
    return tuple((host or "", number) for host, number in map(listener, names(value)))


@parser("SIZE")
def size_bytes(value: str) -> int:
    """`50MB`, `1GiB`, `4096`."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise Misuse(f"{value[:40]!r} is no size", "like 50MB, 1GiB or 4096")
    number, letter, unit = match.groups()
    base = 1000 if (unit or "").lower() == "b" else 1024
    scale = base ** _POWERS[letter.lower()] if letter else 1
    size = int(number) * scale if number.isdecimal() else int(float(number) * scale)
    if size > SIZE_MAX:
        raise Misuse(f"{value[:40]!r} is more than any machine has", "like 50MB, 1GiB or 4096")
    return size


def size_from(least: int, most: int = SIZE_MAX) -> Parser:
    @parser("SIZE")
    def read(value: str) -> int:
        size: int = size_bytes(value)
        if not least <= size <= most:
            raise Misuse(f"{value[:40]!r} is not from {least} to {most} bytes", "like 64MiB")
        return size

    return read


FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ConfLine:
    path: str
    number: int
    key: str
    value: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.number}"


def read_lines(files: Files, path: str) -> list[ConfLine]:
    """Of a file, or of a directory of files."""
    return [line for each in _paths(files, path) for line in parse(_text(files, each), each)]


def parse(text: str, path: str) -> Iterator[ConfLine]:
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        key, equals, rest = bare.partition("=")
        where = f"{path}:{number}"
        if not equals or not key.strip() or "'" in key:
            raise Misuse(f"{where}: {bare[:60]!r} is no setting", "write `key = value`; comments begin with #")
        yield ConfLine(path, number, key.strip(), _value(rest.strip(), where))


def _value(rest: str, where: str) -> str:
    if not rest.startswith("'"):
        return rest.partition("#")[0].strip()
    value, quote, behind = rest[1:].partition("'")
    if not quote or (behind.strip() and not behind.strip().startswith("#")):
        raise Misuse(f"{where}: a quote is left open", "put the value between two single quotes, with none in it")
    return value


def _paths(files: Files, path: str) -> list[str]:
    if not files.exists(path):
        raise Misuse(f"there is no configuration at {path}", "check --config and RABBITMQ_CONFIG_FILE(S)")
    if not files.stat(path).is_directory:
        return [path]
    return [join(path, name) for name in files.list(path) if name.endswith(".conf") and not name.startswith(".")]


def _text(files: Files, path: str) -> str:
    file = files.open(path)
    try:
        raw = file.read_at(0, FILE_BYTES_MAX + 1)
    finally:
        file.close()
    if len(raw) > FILE_BYTES_MAX:
        raise Misuse(f"{path} has more than {FILE_BYTES_MAX} bytes", "is it the right file?")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 at byte {error.start}", "is it the right file?") from error
