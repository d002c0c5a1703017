"""Twenty kills in the suite, any number by `make torture`; and a checker that sees what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.kill_loop import Model, run_loop
from tests.torture.writer import key_of, value_of

State = dict[tuple[int, bytes], bytes]


@pytest.mark.slow
def test_everything_acknowledged_survives_twenty_kills(tmp_path: Path) -> None:
    model = run_loop(str(tmp_path / "log"), kills=20, seed=11, is_quiet=True)
    assert model.acknowledged > 100, "the writers hardly wrote anything"
    assert len(model.gone) > 10
    assert model.compactions > 5, "kills came before any compaction was done"
    assert model.highest_epoch > 50


def state_of(*sessions: tuple[int, int, int, int]) -> State:
    """(run, thread, number, parts) of sessions that are there whole."""
    return {
        (run, key_of(thread, number, part)): value_of(thread, number, parts, 50)
        for run, thread, number, parts in sessions
        for part in range(parts)
    }


def model_of(*lines: str) -> Model:
    model = Model()
    for line in lines:
        model.hear(line)
    return model


ACKNOWLEDGED = ("ready 1", "put 5 0 0 2 7", "put 5 1 0 1 8")
WHOLE = ((5, 0, 0, 2), (5, 1, 0, 1))


def test_what_is_as_confirmed_is_no_problem_and_more_may_be_there() -> None:
    model = model_of(*ACKNOWLEDGED)
    assert model.problems(state_of(*WHOLE), 5) == []
    assert model.problems(state_of(*WHOLE, (5, 0, 1, 3)), 5) == []
    assert (model.acknowledged, model.highest_epoch) == (2, 8)


def test_a_lost_session_is_seen() -> None:
    assert model_of(*ACKNOWLEDGED).problems(state_of(WHOLE[0]), 5) == [
        "acknowledged session (5, 1, 0) of 1 entries is lost"
    ]


def test_half_a_session_is_seen_whether_it_was_acknowledged_or_not() -> None:
    state = state_of(*WHOLE, (5, 0, 1, 3))
    del state[5, key_of(0, 1, 2)]
    assert model_of(*ACKNOWLEDGED).problems(state, 5) == ["session (5, 0, 1) is there in half"]


def test_what_opening_showed_must_stay() -> None:
    model = model_of(*ACKNOWLEDGED)
    model.believe(state_of(*WHOLE, (5, 0, 1, 3)), 5)
    assert model.problems(state_of(*WHOLE), 6) == ["acknowledged session (5, 0, 1) of 3 entries is lost"]


def test_a_removed_storage_that_comes_back_is_seen() -> None:
    model = model_of(*ACKNOWLEDGED, "gone 5 9")
    assert model.problems(state_of(), 8) == []
    assert model.problems(state_of(WHOLE[1]), 8) == ["session (5, 1, 0) came back"]


def test_a_requested_removal_is_there_whole_or_not_at_all() -> None:
    model = model_of(*ACKNOWLEDGED)
    assert model.problems(state_of(*WHOLE), 8) == []
    assert model.problems(state_of(), 8) == []
    assert model.problems(state_of(WHOLE[0]), 8) == ["acknowledged session (5, 1, 0) of 1 entries is lost"]
    model.believe(state_of(), 8)
    assert model.gone == {5}
