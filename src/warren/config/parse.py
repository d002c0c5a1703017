"""How the text of a setting becomes a value. What it cannot be is said with a hint; where it stood, by the caller.

Sizes and shares as RabbitMQ's configuration writes them.

    1073741824    1GB = 1,000,000,000    1GiB = 1G = 1,073,741,824    case does not matter, nor does a space

A letter alone is binary, as RabbitMQ has it.

rabbitmq.conf, read into lines: `key = value`, as sysctl writes them.

    # a comment                                 to the end of the line, behind a value as well
    listeners.tcp.default = 5672
    default_pass = 'with # and spaces '         in single quotes everything is part of it
    auth_mechanisms.1 = PLAIN                   a list

A file, or a directory whose `*.conf` are read in the order of their names; a key that comes again counts as it was said
last. What the keys mean: `conf_keys`. A line that is none is refused, with its number and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from warren.base.errors import Misuse, Refused
from warren.broker.auth.permissions import check_patterns
from warren.files.protocol import Files, join

Read = Callable[[str], Any]

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_NAMES = {"notice": "info", "none": "critical", "alert": "critical", "emergency": "critical"} | {
    level: level for level in LOG_LEVELS
}
_TRUE, _FALSE = ("true", "on", "yes"), ("false", "off", "no", "none")


def text(value: str) -> str:
    return value


def name(value: str) -> str:
    if not value:
        raise Misuse("it is empty", "write a name")
    return value


def pattern(value: str) -> str:
    """Of names of queues and exchanges; an empty one permits nothing."""
    try:
        check_patterns(value)
    except Refused as error:
        raise Misuse(error.what, error.hint or "a regular expression, like ^shop-") from error
    return value


def whole(least: int, most: int) -> Read:
    def read(value: str) -> int:
        found = int(value) if value.isascii() and value.isdecimal() and len(value) < 20 else -1
        if not least <= found <= most:
            raise Misuse(f"{value[:40]!r} is no number from {least} to {most}", "write digits only")
        return found

    return read


port = whole(0, 65_535)


def seconds(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0.0 <= found < 1e9:
        raise Misuse(f"{value[:40]!r} are no seconds", "a number, like 10 or 0.5")
    return found


def milliseconds(value: str) -> float:
    return float(whole(1, 1 << 40)(value)) / 1000


def truth(value: str) -> bool:
    if value.lower() not in _TRUE + _FALSE:
        raise Misuse(f"{value[:40]!r} is neither true nor false", "write one of these two")
    return value.lower() in _TRUE


def log_level(value: str) -> str:
    """One of Python's levels; RabbitMQ's others are the next of them."""
    found = _LEVEL_NAMES.get(value.lower())
    if found is None:
        raise Misuse(f"{value[:40]!r} is no level of a log", f"{', '.join(LOG_LEVELS)}")
    return found


def listener(value: str) -> tuple[str | None, int]:
    """`5672`, `127.0.0.1:5672`, `[::1]:5672`, `:::5672`: an address, if there is one, and a port."""
    host, colon, digits = value.rpartition(":")
    return (host.removeprefix("[").removesuffix("]") if colon else None), port(digits)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(ib?|b)?|b)?", re.IGNORECASE | re.ASCII)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE_MAX = 1 << 60


def size_bytes(text: str) -> int:
    """`50MB`, `1GiB`, `4096`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Misuse(f"{text[:40]!r} is no size", "like 50MB, 1GiB or 4096")
    number, letter, unit = match.groups()
    base = 1000 if (unit or "").lower() == "b" else 1024
    scale = base ** _POWERS[letter.lower()] if letter else 1
    found = int(number) * scale if number.isdecimal() else int(float(number) * scale)
    if found > _SIZE_MAX:
        raise Misuse(f"{text[:40]!r} is more than any machine has", "like 50MB, 1GiB or 4096")
    return found


def share(text: str) -> float:
    """`0.4`, which is two fifths of something."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 < found <= 10.0:
        raise Misuse(f"{text[:40]!r} is no share", "a number like 0.4")
    return found


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
