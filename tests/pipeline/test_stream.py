"""The stream reader, asked as Spark asks it: offsets are (timeline, epoch), batches are whole epochs, each once."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from tests.log.upkeep_stage import DIRECTORY, Stage, put
from tests.pipeline.looking import fields_of_view, struct_type
from warren.base.errors import Gone, Misuse, Refused
from warren.log.retention import Pins
from warren.log.store import LogStore
from warren.pipeline.options import ReadOptions, text_of
from warren.pipeline.schema import TableView
from warren.pipeline.source import WarrenStreamReader

ALL = ReadAllAvailable()
Offset = dict[str, Any]


def reader(stage: Stage, **options: Any) -> WarrenStreamReader:
    asked = ReadOptions.of(text_of({"path": DIRECTORY, **options}))
    return WarrenStreamReader(
        asked, struct_type(fields_of_view(TableView.ENTRIES, "epoch", "key")), stage.environment()
    )


def batch(stream: WarrenStreamReader, start: Offset, end: Offset) -> list[int]:
    """The epochs of a micro-batch, entry by entry."""
    parts = stream.partitions(start, end)
    return sorted(row["epoch"] for part in parts for found in stream.read(part) for row in found.to_pylist())


def batches(stream: WarrenStreamReader, start: Offset | None = None) -> list[list[int]]:
    """Micro-batches until there is nothing new, as with trigger(availableNow=True)."""
    stream.prepareForTriggerAvailableNow()
    at, found = start or stream.initialOffset(), []
    while (end := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        found.append(batch(stream, at, end))
        at = end
    return found


def written(store: LogStore, count: int, size: int = 10) -> list[int]:
    epochs = [int(put(store, {b"k": b"v" * size})) for _ in range(count)]
    store.witness()
    return epochs


def test_every_durable_epoch_comes_once_while_the_owner_runs() -> None:
    """X-11: through rotation, compaction and purge the stream resumes where it was."""
    stage = Stage()
    stream = reader(stage)
    with stage.store() as store:
        epochs = written(store, 3)
        at = stream.initialOffset()
        seen = []
        for upkeep in (store.rotate, store.compact, store.purge, lambda: None, store.compact):
            end = stream.latestOffset(at, ALL)
            seen += batch(stream, at, end)
            at = end
            upkeep()
            epochs += written(store, 2)
        seen += batch(stream, at, stream.latestOffset(at, ALL))
        assert seen == epochs


def test_the_offset_names_timeline_and_epoch() -> None:
    stage = Stage()
    with stage.store() as store:
        epochs = written(store, 2)
        stream = reader(stage)
        assert stream.initialOffset() == {"timeline": f"{1:016x}", "epoch": 0}
        assert stream.latestOffset(stream.initialOffset(), ALL) == stream.reportLatestOffset()
        assert stream.reportLatestOffset() == {"timeline": f"{1:016x}", "epoch": epochs[-1]}
        assert reader(stage, fromEpoch=2).initialOffset()["epoch"] == 1
        assert stream.partitions(stream.reportLatestOffset(), stream.reportLatestOffset()) == []


def test_a_batch_has_at_most_so_many_epochs() -> None:
    stage = Stage()
    with stage.store() as store:
        epochs = written(store, 7)
        found = batches(reader(stage, maxEpochsPerTrigger=3))
        assert found == [epochs[:3], epochs[3:6], epochs[6:]]


def test_a_batch_has_at_most_so_many_bytes_but_always_an_epoch() -> None:
    stage = Stage()
    with stage.store() as store:
        epochs = written(store, 4, size=1000) + written(store, 1, size=9000)
        store.rotate()
        epochs += written(store, 3, size=1000)
        found = batches(reader(stage, maxBytesPerTrigger=3000))
        assert [epoch for part in found for epoch in part] == epochs
        assert [len(part) for part in found] == [2, 2, 1, 2, 1]
        assert len(batches(reader(stage, maxBytesPerTrigger=1))) == len(epochs)
        assert isinstance(reader(stage).getDefaultReadLimit(), ReadAllAvailable)
        assert reader(stage, maxBytesPerTrigger=9).getDefaultReadLimit() == ReadMaxBytes(9)


def test_available_now_ends_where_it_began() -> None:
    stage = Stage()
    with stage.store() as store:
        epochs = written(store, 2)
        stream = reader(stage)
        stream.prepareForTriggerAvailableNow()
        written(store, 2)
        end = stream.latestOffset(stream.initialOffset(), ALL)
        assert end["epoch"] == epochs[-1]
        assert stream.latestOffset(end, ALL) == end


def test_a_restart_resumes_at_the_checkpoint_and_may_repeat_a_batch() -> None:
    stage = Stage(retention_seconds=1e6, retention_bytes=1 << 40)
    with stage.store() as store:
        epochs = written(store, 4)
        first = reader(stage, maxEpochsPerTrigger=2)
        start = first.initialOffset()
        end = first.latestOffset(start, first.getDefaultReadLimit())
        assert batch(first, start, end) == epochs[:2]
    with stage.store() as store:
        again = reader(stage)
        assert batch(again, start, end) == epochs[:2], "a replayed batch is the same"
        assert batches(again, end) == [epochs[2:]]


def test_a_stream_slower_than_retention_gets_the_horizon(caplog: pytest.LogCaptureFixture) -> None:
    """X-06: what is gone is never a gap; with failOnDataLoss=false the stream reports where it resumes."""
    stage = Stage()
    with stage.store() as store:
        written(store, 3)
        slow = reader(stage)
        start = slow.initialOffset()
        end = slow.latestOffset(start, ALL)
        store.compact()
        store.purge()
        later = written(store, 1)
        horizon = store.manifest.state.horizon
        for ask in (lambda: slow.latestOffset(start, ALL), lambda: slow.partitions(start, end)):
            with pytest.raises(Gone, match=f"epoch 1 is gone, horizon is {horizon}"):
                ask()
        patient = reader(stage, failOnDataLoss=False)
        with caplog.at_level(logging.WARNING):
            assert batches(patient, start) == [later]
        assert f"epochs 1 … {horizon} are gone" in caplog.text


def test_a_store_of_another_past_is_refused_with_the_fork() -> None:
    """X-11: a restored or forked store must not be taken for the one of the checkpoint."""
    stage = Stage()
    with stage.store() as store:
        epochs = written(store, 2)
        store.cut().write_to(stage.disk, store.environment.threads, stage.rng, "fork")
        left = written(store, 1)
        at = reader(stage).reportLatestOffset()
    fork = LogStore.open("fork", stage.settings, stage.environment())
    fork.witness()
    stream = reader(stage, path="fork")
    with pytest.raises(
        Refused, match=f"epoch {left[-1]} of timeline 0000000000000001 was abandoned.*at epoch {epochs[-1]}"
    ):
        stream.latestOffset(at, ALL)
    with pytest.raises(Refused, match="not part of this store's past"):
        stream.latestOffset({"timeline": "77", "epoch": 1}, ALL)
    with pytest.raises(Refused, match="no offset of a warren stream"):
        stream.latestOffset({"pwal": 7}, ALL)
    assert stream.latestOffset({"timeline": f"{1:016x}", "epoch": epochs[-1]}, ALL)["epoch"] == epochs[-1]
    fork.abandon()


def test_a_checkpoint_ahead_of_the_store_is_refused() -> None:
    stage = Stage()
    with stage.store() as store:
        written(store, 2)
        with pytest.raises(Refused, match="has read up to epoch 9, this store is durable up to 2"):
            reader(stage).partitions({"timeline": "1", "epoch": 1}, {"timeline": "1", "epoch": 9})


def test_a_batch_holds_its_files_and_the_next_lets_them_go() -> None:
    """X-06: a micro-batch pins what it reads; nothing is left when the stream stops, and a dead one's pin lapses."""
    stage = Stage()
    pins = Pins(stage.disk, DIRECTORY, stage.clock, stage.rng)
    with stage.store() as store:
        written(store, 2)
        stream = reader(stage, pinSeconds=60)
        start = stream.initialOffset()
        end = stream.latestOffset(start, ALL)
        parts = stream.partitions(start, end)
        store.rotate()
        store.compact()
        assert store.purge().files == ()
        assert sum(found.num_rows for part in parts for found in stream.read(part)) == 2
        written(store, 1)
        stream.partitions(end, stream.latestOffset(end, ALL))
        assert len(pins.live()) == 1 and len(store.purge().files) == 1
        stream.commit(end)
        stream.stop()
        assert pins.every() == []
        reader(stage, pinSeconds=60).partitions(end, reader(stage).reportLatestOffset())
        stage.advance(61)
        assert len(pins.every()) == 1 and pins.live() == []


def test_executors_get_the_question_not_the_drivers_state() -> None:
    stream = WarrenStreamReader(ReadOptions("log"), struct_type(fields_of_view(TableView.ENTRIES, "epoch")))
    copy = pickle.loads(pickle.dumps(stream))
    assert copy._options == stream._options and copy._fields == stream._fields


@pytest.mark.parametrize(
    ("options", "words"), [({"view": "kv"}, "a stream shows view 'entries'"), ({"asOf": 3}, "no last epoch")]
)
def test_what_a_stream_cannot_show_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        reader(Stage(), **options)
