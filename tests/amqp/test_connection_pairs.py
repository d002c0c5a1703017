"""Every (state, frame) pair has the answer that stands in expected_pairs.tsv.

`WARREN_GOLDEN=rewrite` writes the file anew; its diff is reviewed like code, against what RabbitMQ answers.
"""

from __future__ import annotations

import os

import pytest

from tests.amqp import pairs
from tests.amqp.plain_server import PlainServer
from warren.amqp import connection as events
from warren.amqp.connection import ConnectionState

REACHED = {
    "starting": ConnectionState.STARTING,
    "securing": ConnectionState.SECURING,
    "tuning": ConnectionState.TUNING,
    "opening": ConnectionState.OPENING,
    "ended": ConnectionState.CLOSE_SENT,
}


def answer(state: str, tried: str) -> str:
    steps, channel = pairs.STATES[state]
    server = PlainServer()
    for step in steps:
        server.feed(step)
    assert server.connection.state is REACHED.get(state.split(maxsplit=1)[0], ConnectionState.RUNNING)
    before = server.connection.state
    received = server.feed(pairs.to_send(tried, channel))
    match received:
        case [events.ConnectionViolated(close=close)]:
            return f"hard {close.reply_code:d}"
        case [events.ChannelViolated(close=closed)]:
            return f"soft {closed.reply_code:d}"
        case [events.ConnectionEnded(was_orderly=False)]:
            return "dropped"
        case []:
            assert server.connection.state is before
            return "accepted" if is_taken_silently(state, tried) else "ignored"
    return "accepted"


def is_taken_silently(state: str, tried: str) -> bool:
    """Parts of a content that is not whole yet."""
    return (state, tried) in {("open 1", "basic.publish"), ("header 1", "a header frame")}


def test_golden_answers_are_the_expected_ones_for_every_pair() -> None:
    answers = {(state, tried): answer(state, tried) for state in pairs.STATES for tried in pairs.TRIED}
    if os.environ.get("WARREN_GOLDEN") == "rewrite":
        pairs.EXPECTED_FILE.write_text(pairs.written_pairs(answers), encoding="utf-8")
    expected = pairs.expected_pairs()
    differing = [
        f"{pair}: {answers[pair]}, expected {expected.get(pair)}"
        for pair in answers
        if answers[pair] != expected.get(pair)
    ]
    assert not differing
    assert expected.keys() == answers.keys()


@pytest.mark.parametrize("state", pairs.STATES)
def test_whatever_is_refused_leaves_a_machine_that_still_answers(state: str) -> None:
    """Behind every single pair the peer says close, and anything once more; nothing is ever raised."""
    steps, channel = pairs.STATES[state]
    for tried in pairs.TRIED:
        server = PlainServer()
        for step in (*steps, pairs.to_send(tried, channel)):
            server.feed(step)
        for more in ("connection.close", tried, "connection.close-ok", "connection.close-ok"):
            server.feed(pairs.to_send(more, 0))
        assert server.connection.state in (
            ConnectionState.CLOSED,
            ConnectionState.TUNING,
            ConnectionState.OPENING,
            ConnectionState.STARTING,
        )
