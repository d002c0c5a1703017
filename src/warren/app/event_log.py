"""The event log: one line per event, on standard error unless a file is configured.

    2026-11-16T09:41:02.123Z WARNING login refused user=ann peer=192.0.2.7 why="wrong password"

The text of an event is constant; its facts are passed as `extra={"facts": {…}}`. So input from outside is never part of
a format string, and a value with spaces, quotes or line breaks is written as JSON: one event is one line. A file that
was moved is opened again, as logrotate expects.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

from warren.base.errors import Refused
from warren.config.configuration import LogTo

NAME = "warren"
_TIME = "%Y-%m-%dT%H:%M:%S"


class EventLineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime(_TIME)
        facts = getattr(record, "facts", {})
        pairs = "".join(f" {name}={_written(value)}" for name, value in _pairs(facts))
        line = f"{time}.{int(record.msecs):03d}Z {record.levelname} {_one_line(record.getMessage())}{pairs}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def begin(log_to: LogTo) -> None:
    """Write events there, and nowhere else."""
    handler = _handler(log_to.path)
    handler.setFormatter(EventLineFormatter())
    log = logging.getLogger(NAME)
    for old in list(log.handlers):
        log.removeHandler(old)
        old.close()
    log.addHandler(handler)
    log.setLevel(log_to.level.upper())
    log.propagate = False


def _handler(path: str) -> logging.Handler:
    if not path or path == "-":
        return logging.StreamHandler(sys.stdout if path else sys.stderr)
    try:
        return WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise Refused(f"the event log cannot be written to {path}: {error.strerror}", "name another file") from error


def _pairs(facts: object) -> list[tuple[str, object]]:
    return [(str(name), value) for name, value in facts.items()] if isinstance(facts, Mapping) else []


def _written(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(' "=\\') else json.dumps(text)


def _one_line(message: str) -> str:
    return message if message.isprintable() else json.dumps(message)[1:-1]
