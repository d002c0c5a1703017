"""rabbitmq.conf, read into lines: `key = value`, as sysctl writes them.

    # a comment                                 to the end of the line, behind a value as well
    listeners.tcp.default = 5672
    default_pass = 'with # and spaces '         in single quotes everything is part of it
    auth_mechanisms.1 = PLAIN                   a list

A file, or a directory whose `*.conf` are read in the order of their names; a key that comes again counts as it was said
last. What the keys mean: `conf_keys`. A line that is none is refused, with its number and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warren.base.errors import Misuse
from warren.files.protocol import Files, join

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
