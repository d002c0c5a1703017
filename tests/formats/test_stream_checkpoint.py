"""A Spark stream, exports and a store filled by `sync`, all begun by an earlier build, continue today.

    unpack ─▶ write three epochs ─▶ stream · export · sync ─▶ the old rows and the new ones, each once

    ended/         as it is in the archive
    interrupted/   the stream's last batch is planned and written, but not committed

Both are continued by one process, since a JVM takes seconds to start. How the archive was made, and how absolute paths
in it are handled: `make_stream_checkpoint`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

import warren
from tests.formats.make_stream_checkpoint import (
    ARCHIVE,
    EPOCHS,
    KEYS_PER_EPOCH,
    LOG,
    STORAGE,
    catch_up_in_process,
    keys_of,
    unpack_at,
    write,
)

ARCHIVES = sorted(ARCHIVE.parent.glob("pipeline_v*.tar.xz"))
SESSIONS = EPOCHS + 3
FIRST_EPOCH = 3  # of a session; epochs 1 and 2 hold the entries that create the storage
LAST_EPOCH = FIRST_EPOCH + SESSIONS - 1
FIRST_ROWS = [[1, ""], [2, ""], [2, STORAGE.encode().hex()]]
NEW_ROWS = (SESSIONS - EPOCHS) * (KEYS_PER_EPOCH + 1)
KINDS = ("ended", "interrupted")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


class Continued(NamedTuple):
    home: Path
    batches_before: tuple[int, int]  # planned, committed
    store_epoch_before: int
    done: dict[str, Any]


@pytest.fixture(scope="module", params=ARCHIVES, ids=[path.name.partition(".")[0] for path in ARCHIVES])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Continued]:
    homes = [tmp_path_factory.mktemp(kind) for kind in KINDS]
    for home in homes:
        unpack_at(request.param, home)
    uncommit_last_batch(homes[1])
    before = [batches(home) for home in homes]
    store_epochs = [store_epoch(home) for home in homes]
    for home in homes:
        write(home, range(EPOCHS, SESSIONS))
    done = catch_up_in_process(*homes)
    return dict(zip(KINDS, map(Continued, homes, before, store_epochs, done), strict=True))


@pytest.fixture(params=KINDS)
def continued(request: pytest.FixtureRequest, both: dict[str, Continued]) -> Continued:
    return both[request.param]


def uncommit_last_batch(home: Path) -> None:
    """The driver is killed before the sink commits: the batch must be read again, and its first file does not count."""
    batch = batches(home)[0] - 1
    for folder in (home / "checkpoint" / "commits", home / "table" / "_spark_metadata"):
        (folder / f"{batch}").unlink()
        (folder / f".{batch}.crc").unlink(missing_ok=True)


def batches(home: Path) -> tuple[int, int]:
    from tests.pipeline.streaming import committed, planned

    return len(planned(home / "checkpoint")), len(committed(home / "checkpoint"))


def store_epoch(home: Path) -> int:
    """The mark of the store, read from the store alone."""
    from tests.pipeline.sync_stage import stopped_store

    return stopped_store(home / "data")[1]


def test_there_is_an_archive() -> None:
    assert ARCHIVE in ARCHIVES


def test_a_stream_continues_at_its_checkpoint_with_each_row_once(both: dict[str, Continued]) -> None:
    before, with_new = EPOCHS + FIRST_EPOCH - 1, SESSIONS + FIRST_EPOCH - 1  # one epoch is one batch
    assert [both[kind].batches_before for kind in KINDS] == [(before, before), (before, before - 1)]
    for kind in KINDS:
        assert both[kind].done["streamed"] == FIRST_ROWS + [
            [FIRST_EPOCH + number, key.hex()] for number in range(SESSIONS) for key in sorted(keys_of(number))
        ], kind
        assert batches(both[kind].home) == (with_new, with_new)


def test_an_export_continues_where_its_table_stands(continued: Continued) -> None:
    """The second run of the same process finds nothing to add."""
    from deltalake import DeltaTable

    from tests.pipeline.table_stage import delta, entries_in, leftovers, parquet_export

    home = continued.home
    assert continued.done["exported"] == {"delta": [[1, NEW_ROWS], [0, 0]], "parquet": [[1, NEW_ROWS], [0, 0]]}
    entries = entries_in(delta(home / "entries"))
    assert entries == entries_in(parquet_export(home / "entries_parquet"))
    found = sorted((epoch, key, value) for epoch, _, _, _, key, value in entries if epoch >= FIRST_EPOCH)
    assert found == [
        (FIRST_EPOCH + number, *row) for number in range(SESSIONS) for row in sorted(keys_of(number).items())
    ]
    assert len(entries) == len(found) + len(FIRST_ROWS)
    assert DeltaTable(str(home / "entries")).transaction_version("warren-export") == LAST_EPOCH
    assert leftovers(home / "entries") == leftovers(home / "entries_parquet") == []


def test_a_sync_continues_at_the_mark_of_the_store(continued: Continued) -> None:
    """Only the new entries are brought in. The store's mark is the last epoch, so that all reads are from the store."""
    done = continued.done["synced"]
    assert (done["status"], done["unfit"], done["entries"]) == ("ok", 0, NEW_ROWS) and done["tables"] > 0
    assert continued.store_epoch_before == FIRST_EPOCH + EPOCHS - 1
    assert done["epoch"] == done["durable"] == store_epoch(continued.home) == LAST_EPOCH
    assert list((continued.home / "data" / "set-aside").iterdir()) == [], "the store was not rebuilt from the log"
    with warren.open(str(continued.home / "data"), log_settings=LOG) as db:
        assert dict(db.kv(STORAGE)) == {key: value for n in range(SESSIONS) for key, value in keys_of(n).items()}
        assert not db.alarms()
