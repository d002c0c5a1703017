"""What a client may answer to the offer."""

from __future__ import annotations

import pytest

from warren.amqp.connection import Tuning, agreed, offered
from warren.amqp.errors import PeerError, ReplyCode
from warren.amqp.methods import ConnectionTune, ConnectionTuneOk

OFFER = Tuning(channel_max=2047, frame_max=131072, heartbeat=60)


def test_the_answer_counts_within_the_offer() -> None:
    assert agreed(OFFER, ConnectionTuneOk(100, 4096, 580)) == Tuning(100, 4096, 580)
    assert offered(OFFER) == ConnectionTune(2047, 131072, 60)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (ConnectionTuneOk(2047, 131073, 0), r"frame_max = 131073 is higher than the maximum allowed value \(131072\)"),
        (ConnectionTuneOk(2047, 0, 0), r"frame_max = 0 \(no limit\) is higher"),
        (ConnectionTuneOk(2047, 4095, 0), r"frame_max = 4095 is lower than the minimum allowed value \(4096\)"),
        (ConnectionTuneOk(2048, 4096, 0), "channel_max = 2048 is higher"),
        (ConnectionTuneOk(0, 4096, 0), r"channel_max = 0 \(no limit\) is higher"),
    ],
)
def test_an_answer_beyond_the_offer_is_not_allowed(answer: ConnectionTuneOk, what: str) -> None:
    with pytest.raises(PeerError, match=what) as caught:
        agreed(OFFER, answer)
    assert caught.value.code is ReplyCode.NOT_ALLOWED
    assert (caught.value.class_id, caught.value.method_id) == (10, 30)


def test_no_limit_is_agreed_where_none_is_offered() -> None:
    assert agreed(Tuning(0, 0, 0), ConnectionTuneOk(0, 0, 0)).channel_number_max == 65535
