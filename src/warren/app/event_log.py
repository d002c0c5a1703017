"""The event log: one line per event, on standard error unless a file is configured.

    text    2026-11-16T09:41:02.123Z WARNING login refused user=ann peer=192.0.2.7 why="wrong password"
    json    {"time": "2026-11-16T09:41:02.123Z", "level": "warning", "msg": "login refused", "user": "ann", …}

The text of an event is constant; its facts are passed as `extra={"facts": {…}}`. So input from outside is never part of
a format string, and a value with spaces, quotes or line breaks is written as JSON: one event is one line. Lines of a
traceback are indented, so that none of them begins like an event. Long values are cut.

Categories are those of RabbitMQ, each with a level of its own: the loggers `warren.connection`, `warren.channel` and
`warren.queue`; all other loggers below `warren` are the category `default`.

Events are logged in the event loop too, so nothing waits for a reader: a line that a pipe or a terminal has no room for
is dropped, as is one that the disk refuses; the next line that can be written follows their count. A file that was
moved is created again, as logrotate expects: at the next event, or at SIGHUP (`reopen`).
"""

from __future__ import annotations

import json
import logging
import select
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Final, TextIO

from warren.base.errors import Refused
from warren.config.configuration import LogTo

NAME = "warren"
VALUE_CHARACTERS_MAX: Final = 2000
CHUNK_CHARACTERS: Final = 1000  # at most 4096 bytes, which a pipe that is writable takes without blocking
_TIME = "%Y-%m-%dT%H:%M:%S"


# -- lines ------------------------------------------------------------------------------------------------------------


class EventLineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(f" {name}={_written(value)}" for name, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname} {_one_line(record.getMessage())}{pairs}"
        return f"{line}\n{_indented(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonLineFormatter(logging.Formatter):
    """Numbers and truth values stay what they are. A fact named like one of the first three keys is left out."""

    def format(self, record: logging.LogRecord) -> str:
        own = {"time": _time(record), "level": record.levelname.lower(), "msg": record.getMessage()}
        facts = {name: _plain(value) for name, value in _facts(record).items() if name not in own}
        failure = {"exception": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(own | facts | failure)


FORMATTERS: Final[dict[str, type[logging.Formatter]]] = {"text": EventLineFormatter, "json": JsonLineFormatter}


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts = getattr(record, "facts", None)
    return {str(name): value for name, value in facts.items()} if isinstance(facts, Mapping) else {}


def _time(record: logging.LogRecord) -> str:
    return f"{datetime.fromtimestamp(record.created, UTC).strftime(_TIME)}.{int(record.msecs):03d}Z"


def _written(value: object) -> str:
    text = _cut(str(value))
    return text if text.isprintable() and text and not set(text) & set(' "=\\') else json.dumps(text)


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | None) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}…"


def _one_line(message: str) -> str:
    return message if message.isprintable() else json.dumps(message)[1:-1]


def _indented(trace: str) -> str:
    return "\n".join(f"    {_one_line(line)}" for line in trace.splitlines())


# -- where they are written -------------------------------------------------------------------------------------------


class ConsoleHandler(logging.StreamHandler[TextIO]):
    dropped = 0  # since the last line that was written

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.dropped:
                self._write(self._count_of_dropped())
                self.dropped = 0
            self._write(record)
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Called while an exception is handled."""
        self.dropped += 1
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        text = self.format(record) + self.terminator
        for start in range(0, len(text), CHUNK_CHARACTERS):
            if not _has_room(self.stream):
                raise BlockingIOError("no room for a line")
            self.stream.write(text[start : start + CHUNK_CHARACTERS])
            self.stream.flush()

    def _count_of_dropped(self) -> logging.LogRecord:
        facts = {"count": self.dropped}
        fields = {"name": NAME, "levelname": "WARNING", "msg": "event lines dropped", "facts": facts}
        return logging.makeLogRecord(fields)


class FileHandler(ConsoleHandler, WatchedFileHandler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.reopen()
        except OSError:
            self.handleError(record)
        else:
            super().emit(record)

    def reopen(self) -> None:
        """Create the file again if it was moved or removed."""
        self.reopenIfNeeded()
        if self.stream is None:  # it could not be created before
            self.stream = self._open()
            self._statstream()


def _has_room(stream: TextIO) -> bool:
    """Whether a chunk can be written without waiting for a reader."""
    try:
        number = stream.fileno()
    except OSError:  # a stream of a test
        return True
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return bool(poll.poll(0))


def begin(log_to: LogTo) -> None:
    """Write events there, and nowhere else."""
    handler = _handler(log_to.path)
    handler.setFormatter(FORMATTERS[log_to.format]())
    log = logging.getLogger(NAME)
    for old in list(log.handlers):
        log.removeHandler(old)
        old.close()
    log.addHandler(handler)
    log.setLevel(log_to.level.upper())
    log.propagate = False
    for category, level in log_to.category_levels.items():
        logging.getLogger(f"{NAME}.{category}").setLevel(level.upper() or logging.NOTSET)


def reopen() -> None:
    """SIGHUP: a file that was moved is created again."""
    for handler in logging.getLogger(NAME).handlers:
        if isinstance(handler, FileHandler) and handler.lock is not None:
            with handler.lock:
                handler.reopen()


def _handler(path: str) -> logging.Handler:
    if not path or path == "-":
        return ConsoleHandler(sys.stdout if path else sys.stderr)
    try:
        return FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise Refused(f"the event log cannot be written to {path}: {error.strerror}", "name another file") from error
