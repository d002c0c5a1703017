"""The log of events: one line for each, whatever is in it."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.app.event_log import NAME, VALUE_CHARACTERS_MAX, ConsoleHandler, begin, reopen
from warren.base.errors import Refused
from warren.config.configuration import LogTo

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    log = logging.getLogger(NAME)
    before = list(log.handlers), log.level, log.propagate
    yield
    for category in LogTo().category_levels:
        logging.getLogger(f"{NAME}.{category}").setLevel(logging.NOTSET)
    for handler in list(log.handlers):
        handler.close()
    log.handlers[:], log.level, log.propagate = before


def written(path: Path, level: str = "info") -> logging.Logger:
    begin(LogTo(level, str(path)))
    return logging.getLogger("warren.somewhere")


def lines(path: Path) -> list[str]:
    found = path.read_text(encoding="utf-8").splitlines()
    assert all(TIME.match(line) for line in found)
    return [TIME.sub("", line) for line in found]


def test_an_event_is_one_line_with_its_facts(tmp_path: Path) -> None:
    log = written(tmp_path / "log")
    log.warning("login refused", extra={"facts": {"user": "ann", "seconds": 1.5, "why": "wrong password", "peer": ""}})
    log.info("ready")
    assert lines(tmp_path / "log") == [
        'WARNING login refused user=ann seconds=1.5 why="wrong password" peer=""',
        "INFO ready",
    ]


def test_what_came_from_outside_stays_in_its_line(tmp_path: Path) -> None:
    log = written(tmp_path / "log")
    log.warning("login refused", extra={"facts": {"user": 'a\nERROR %s b="c" \x1b[31m \udc80'}})
    log.warning("%s", "two\nlines")
    first, second = lines(tmp_path / "log")
    assert first == r'WARNING login refused user="a\nERROR %s b=\"c\" \u001b[31m \udc80"'
    assert second == r"WARNING two\nlines"


def test_only_what_is_important_enough_is_written(tmp_path: Path) -> None:
    log = written(tmp_path / "log", "error")
    log.warning("a little")
    log.error("much")
    assert lines(tmp_path / "log") == ["ERROR much"]


def test_a_file_that_was_moved_away_is_made_again(tmp_path: Path) -> None:
    log = written(tmp_path / "log")
    log.info("one")
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.info("two")
    assert lines(tmp_path / "log") == ["INFO two"]


def test_an_error_of_ours_is_shown_with_where_it_came_from(tmp_path: Path) -> None:
    log = written(tmp_path / "log")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("it failed")
    assert (tmp_path / "log").read_text(encoding="utf-8").endswith("ValueError: why\n")


def test_standard_error_unless_another_place_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    begin(LogTo())
    logging.getLogger("warren.somewhere").info("here")
    begin(LogTo(path="-"))
    logging.getLogger("warren.somewhere").info("there")
    captured = capsys.readouterr()
    assert captured.err.endswith("INFO here\n") and captured.out.endswith("INFO there\n")


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the event log cannot be written to"):
        begin(LogTo(path=str(tmp_path / "none" / "log")))


def test_a_traceback_cannot_begin_a_line_of_its_own(tmp_path: Path) -> None:
    log = written(tmp_path / "log")
    try:
        raise ValueError("x\n2026-01-01T00:00:00.000Z CRITICAL forged\x1b[2J\u2028 again")
    except ValueError:
        log.exception("it failed")
    first, *trace = (tmp_path / "log").read_text(encoding="utf-8").split("\n")[:-1]
    assert first.endswith("ERROR it failed")
    assert len(trace) >= 4 and all(line.startswith("    ") and line.isprintable() for line in trace)


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    log = written(tmp_path / "log")
    log.info("queue declared", extra={"facts": {"queue": "q" * 100_000, "more": 1}})
    assert lines(tmp_path / "log") == [f"INFO queue declared queue={'q' * VALUE_CHARACTERS_MAX}… more=1"]


def test_json_has_the_same_facts_with_their_types(tmp_path: Path) -> None:
    begin(LogTo(path=str(tmp_path / "log"), format="json"))
    log = logging.getLogger("warren.somewhere")
    log.warning("login refused", extra={"facts": {"user": "a\nb", "count": 3, "is_known": False, "msg": "mine"}})
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("it failed")
    first, second = map(json.loads, (tmp_path / "log").read_text(encoding="utf-8").splitlines())
    assert re.fullmatch(TIME.pattern.strip("^ "), first.pop("time"))
    assert first == {"level": "warning", "msg": "login refused", "user": "a\nb", "count": 3, "is_known": False}
    assert second["exception"].endswith("ValueError: why")


def test_a_category_has_a_level_of_its_own_and_loses_it_again(tmp_path: Path) -> None:
    begin(LogTo("warning", str(tmp_path / "log"), connection_level="debug", queue_level="error"))
    for category in ("connection", "channel", "queue"):
        logging.getLogger(f"warren.{category}").debug(f"{category} debug")
        logging.getLogger(f"warren.{category}").warning(f"{category} warning")
    begin(LogTo("warning", str(tmp_path / "log")))
    logging.getLogger("warren.connection").info("connection info")
    expected = ["DEBUG connection debug", "WARNING connection warning", "WARNING channel warning"]
    assert lines(tmp_path / "log") == expected


def test_a_reader_that_does_not_read_is_not_waited_for() -> None:
    """A pipe holds 64 KiB: without the check the second half of these lines would block for ever."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as stream, os.fdopen(reading, "rb", buffering=0) as reader:
        handler = ConsoleHandler(stream)
        handler.setFormatter(logging.Formatter())
        log = logging.Logger("pipe")
        log.addHandler(handler)
        for number in range(2000):
            log.info(f"{number} {'x' * 100}")
        dropped = handler.dropped
        assert 0 < dropped < 2000
        reader.read(1 << 17)
        log.info("again")
        assert reader.read(1 << 17).decode().splitlines()[-2:] == ["event lines dropped", "again"]
        assert handler.dropped == 0


def test_a_file_that_cannot_be_created_again_is_tried_at_each_line(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    log = written(directory / "log")
    log.info("one")
    directory.rename(tmp_path / "old")
    log.info("two")
    log.info("three")
    directory.mkdir()
    log.info("four")
    assert lines(directory / "log") == ["WARNING event lines dropped count=2", "INFO four"]


def test_a_file_that_was_moved_is_created_at_once_when_reopened(tmp_path: Path) -> None:
    written(tmp_path / "log")
    (tmp_path / "log").rename(tmp_path / "log.1")
    reopen()
    assert (tmp_path / "log").exists()
