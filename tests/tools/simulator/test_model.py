"""The oracle itself: what it demands, what it leaves open, and that each broken promise is called by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.simulator.model import Model, ModelState
from tools.simulator.observations import RecoveredEntry, ReopenedState, State, Violation, Write
from warren.log.settings import EntryKind

PUT = EntryKind.PUT


def put(session: int) -> Write:
    return Write(PUT, 1, b"k%d" % session, b"s%d" % session)


def model_with(*epochs: int) -> Model:
    """Sessions 1, 2, … that ended in these epochs, each with one put under a key of its own."""
    model = Model()
    for number, epoch in enumerate(epochs, 1):
        model.begin(number)
        model.write(number, put(number))
        model.ending(number)
        model.ended(number, epoch)
    return model


def seen(durable: int, *sessions: tuple[int, int]) -> ReopenedState:
    """A store that shows these (session, epoch)."""
    state: State = {(1, put(number).key): put(number).value for number, _ in sessions}
    entries = tuple(RecoveredEntry(epoch, put(number)) for number, epoch in sessions)
    return ReopenedState(durable, durable + 1, durable, state, entries, {})


def test_what_was_confirmed_must_be_there() -> None:
    model = model_with(1, 2)
    model.confirm(2)
    with pytest.raises(Violation, match=r"epoch 2 was confirmed, only 1 is durable: sessions \[2\] are lost"):
        model.compare(seen(1, (1, 1)))


def test_what_was_not_confirmed_may_be_there_or_not_and_is_then_certain_or_gone() -> None:
    for durable, standing in ((1, ModelState.GONE), (2, ModelState.CERTAIN)):
        model = model_with(1, 2)
        model.confirm(1)
        model.compare(seen(durable, *[(1, 1), (2, 2)][:durable]))
        assert model.sessions[2].standing is standing


def test_what_is_gone_never_comes_back() -> None:
    model = model_with(1, 2)
    model.compare(seen(1, (1, 1)))
    with pytest.raises(Violation, match="session 2 of epoch 2 is gone"):
        model.compare(seen(2, (1, 1), (2, 2)))


def test_what_became_certain_by_being_there_stays() -> None:
    model = model_with(1)
    model.compare(seen(1, (1, 1)))
    with pytest.raises(Violation, match="only 0 is durable"):
        model.compare(seen(0))


def test_sessions_are_there_in_order() -> None:
    model = model_with(1, 2)
    with pytest.raises(Violation, match=r"session 1 \(epoch 1\) has 0 of its 1 puts"):
        model.compare(seen(2, (2, 2)))


def test_half_a_session_is_a_violation() -> None:
    model = model_with()
    model.begin(1)
    for number in (1, 2):
        model.write(1, put(number))
    model.ending(1)
    model.ended(1, 1)
    with pytest.raises(Violation, match="has 1 of its 2 puts"):
        model.compare(seen(1, (1, 1)))


def test_a_session_whose_end_never_returned_may_be_there() -> None:
    for is_there in (True, False):
        model = model_with()
        model.begin(1)
        model.write(1, put(1))
        model.ending(1)
        model.process_died()
        model.compare(seen(1, (1, 1)) if is_there else seen(0))
        assert model.sessions[1].standing is (ModelState.CERTAIN if is_there else ModelState.GONE)


def test_open_and_aborted_sessions_must_not_be_there() -> None:
    for end in (Model.process_died, lambda model: model.aborted(1)):
        model = Model()
        model.begin(1)
        model.write(1, put(1))
        end(model)
        with pytest.raises(Violation, match="session 1 of epoch 0 is gone"):
            model.compare(seen(1, (1, 1)))


def test_an_entry_that_no_session_wrote_is_a_violation() -> None:
    with pytest.raises(Violation, match="which no session wrote"):
        model_with().compare(seen(1, (9, 1)))


def test_an_epoch_below_the_horizon_of_others_must_be_there() -> None:
    model = model_with(1, 2)
    model.witnessed(2)
    with pytest.raises(Violation, match="showed others epoch 2"):
        model.compare(seen(1, (1, 1)))


def test_an_epoch_on_the_disk_is_not_used_again() -> None:
    with pytest.raises(Violation, match="epoch 3 is used again"):
        model_with().compare(ReopenedState(2, 3, 3, {}, (), {}))


def test_an_epoch_has_one_content() -> None:
    model = model_with()
    model.compare(ReopenedState(1, 2, 1, {}, (), {(5, 1): b"x"}))
    with pytest.raises(Violation, match="epoch 1 was used twice"):
        model.compare(ReopenedState(1, 3, 1, {}, (), {(5, 1): b"y"}))


def test_an_epoch_that_a_callback_named_makes_a_late_ending_certain() -> None:
    model = Model()
    model.begin(1)
    model.ending(1)
    model.confirm(4)
    model.ended(1, 4)
    assert model.sessions[1].standing is ModelState.CERTAIN


def test_the_state_is_that_of_all_sessions_in_the_order_of_their_ends() -> None:
    model = Model()
    clear = Write(EntryKind.CLEAR_STORAGE, 1)
    remove = Write(EntryKind.REMOVE, 1, b"k3")
    for number, writes in enumerate(([put(1), put(2)], [clear, put(3)], [put(4), remove]), 1):
        model.begin(number)
        for write in writes:
            model.write(number, write)
        model.ended(number, 1 + number // 3)
    model.confirm_ended()
    assert model.expected() == {(1, b"k4"): b"s4"}


def test_a_wrong_state_says_where() -> None:
    model = model_with(1)
    shown = replace(seen(1, (1, 1)), state={(1, b"k1"): b"other"})
    with pytest.raises(Violation, match=r"wrong in 1 places: \(1, b'k1'\) is b'other' instead of b's1'"):
        model.compare(shown)


def test_a_decayed_session_is_lost_only_to_a_repair() -> None:
    lost = replace(seen(2, (2, 2)), state={(1, b"k2"): b"s2"})
    for is_repaired in (True, False):
        model = model_with(1, 2)
        model.confirm(2)
        model.decay([put(1)])
        model.is_repaired = is_repaired
        if is_repaired:
            model.compare(lost)
            assert model.sessions[1].standing is ModelState.GONE
        else:
            with pytest.raises(Violation, match="the state read back is wrong"):
                model.compare(lost)


def test_a_copy_goes_its_own_way() -> None:
    model = model_with(1)
    other = model.copy()
    other.confirm(1)
    other.write(1, put(2))
    assert model.sessions[1].standing is ModelState.UNCERTAIN
    assert len(model.sessions[1].writes) == 1
    assert model.confirmed == 0


def record(session: int) -> Write:
    return Write(EntryKind.RECORD, 0, b"", b"r%d" % session)


def stream_model(*epochs: int) -> Model:
    model = Model()
    for number, epoch in enumerate(epochs, 1):
        model.begin(number, "own")
        model.write(number, record(number))
        model.ending(number)
        model.ended(number, epoch)
    return model


def seen_records(durable: int, *numbers: int, shown: tuple[int, ...] | None = None) -> ReopenedState:
    entries = tuple(RecoveredEntry(number, record(number)) for number in numbers)
    values = [record(number).value for number in (numbers if shown is None else shown)]
    return ReopenedState(durable, durable + 1, durable, {}, entries, {}, {"own": values})


def test_a_stream_shows_all_its_records_in_order() -> None:
    stream_model(1, 2).compare(seen_records(2, 1, 2))
    for shown in ((1,), (2, 1), ()):
        with pytest.raises(Violation, match="stream own shows"):
            stream_model(1, 2).compare(seen_records(2, 1, 2, shown=shown))


def test_a_stream_that_is_not_there_has_lost_its_records() -> None:
    lost = replace(seen_records(1, 1), records={})
    with pytest.raises(Violation, match="stream own shows"):
        stream_model(1).compare(lost)


def test_a_base_that_was_moving_may_be_here_or_there_and_one_that_has_moved_stays() -> None:
    for shown in ((1, 2), (2,)):
        model = stream_model(1, 2)
        model.base_moves("own", 2)
        model.compare(seen_records(2, 1, 2, shown=shown))
        with pytest.raises(Violation, match="stream own shows"):
            model.compare(seen_records(2, 1, 2, shown=(2,) if shown == (1, 2) else (1, 2)))
    model = stream_model(1, 2)
    model.base_moves("own", 2)
    model.base_moved("own")
    with pytest.raises(Violation, match="stream own shows"):
        model.compare(seen_records(2, 1, 2))
