"""The log of events: one line for each, whatever is in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.app.event_log import NAME, begin
from warren.base.errors import Refused
from warren.config.configuration import LogTo

TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    log = logging.getLogger(NAME)
    before = list(log.handlers), log.level, log.propagate
    yield
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
