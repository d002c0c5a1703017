"""The log of events: one line each, on standard error unless another place was named.

    2026-11-16T09:41:02.123Z WARNING login refused user=ann peer=192.0.2.7 why="wrong password"

Whoever logs says what happened in fixed words and hands the facts along: `extra={"facts": {…}}`. So nothing that came
from outside is ever part of a format, and a value with spaces, quotes or line breaks is written as JSON: one event
stays one line. A file is opened again when somebody has moved it away, as logrotate does.
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
        told = "".join(f" {name}={_written(value)}" for name, value in _pairs(facts))
        line = f"{time}.{int(record.msecs):03d}Z {record.levelname} {_one_line(record.getMessage())}{told}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def begin(log_to: LogTo) -> None:
    """From now on events are written there, and nowhere else."""
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
        raise Refused(
            f"the log of events cannot be written to {path}: {error.strerror}", "name another file"
        ) from error


def _pairs(facts: object) -> list[tuple[str, object]]:
    return [(str(name), value) for name, value in facts.items()] if isinstance(facts, Mapping) else []


def _written(value: object) -> str:
    told = str(value)
    return told if told.isprintable() and told and not set(told) & set(' "=\\') else json.dumps(told)


def _one_line(message: str) -> str:
    return message if message.isprintable() else json.dumps(message)[1:-1]
