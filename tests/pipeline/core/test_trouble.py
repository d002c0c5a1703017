"""What goes wrong is one Python error in our words, on every kind of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.ten_epochs import ENTRIES_PER_EPOCH, EPOCHS
from warren.base.errors import Damage, Gone, Misuse, Refused, WarrenError
from warren.log.store import LogStore
from warren.pipeline import read
from warren.pipeline.session import clear_errors

pytestmark = pytest.mark.spark
Ask = Callable[[Any, LogStore], Any]


def source(spark: Any) -> Any:
    return spark.read.format("warren")


BAD: dict[str, tuple[type[WarrenError], str, Ask]] = {
    "no store": (Refused, "no log directory", lambda spark, store: source(spark).load("/tmp").count()),
    "no view": (
        Misuse,
        "view is 'x'",
        lambda spark, store: source(spark).option("view", "x").load(store.directory).count(),
    ),
    "no such option": (
        Misuse,
        "'asof_' is no option",
        lambda spark, store: source(spark).option("asof_", 1).load(store.directory).count(),
    ),
    "an epoch to come": (
        Refused,
        "epoch 99 is not durable",
        lambda spark, store: read(store.directory, as_of=99, spark=spark).count(),
    ),
    "a time before all": (
        Gone,
        "no epoch is known",
        lambda spark, store: read(store.directory, as_of="1999-01-01", spark=spark).count(),
    ),
    "no such column": (
        Refused,
        "has no column 'kye'",
        lambda spark, store: read(store.directory, columns=["kye"], spark=spark).count(),
    ),
    "a column of another type": (
        Refused,
        "is bigint, not string",
        lambda spark, store: source(spark).schema("epoch string").load(store.directory).count(),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_python_error(spark: Any, store: LogStore, case: str) -> None:
    family, words, ask = BAD[case]
    with pytest.raises(family, match=words) as raised, clear_errors():
        ask(spark, store)
    assert type(raised.value) is family and "Traceback" not in str(raised.value)


def test_damage_is_named_and_can_be_skipped(spark: Any, store: LogStore) -> None:
    """A damaged block is an error with file and offset; skipped, it is a row of view `damage`, the rest is there."""
    [record, *_] = [record for record in store.manifest.state.files.values() if record.entries]
    path = Path(store.directory, record.name)
    raw = bytearray(path.read_bytes())
    raw[record.end - 300] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Damage, match=re.escape(str(path))) as raised, clear_errors():
        read(store.directory, spark=spark).count()
    [row] = read(store.directory, view="damage", spark=spark).collect()
    assert (row.path, row.offset) == (raised.value.path, raised.value.offset)
    left = read(store.directory, spark=spark, onDamage="skip").count()
    assert (EPOCHS - 1) * ENTRIES_PER_EPOCH <= left <= EPOCHS * ENTRIES_PER_EPOCH
