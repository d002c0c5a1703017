"""Options of a read, checked before anything is opened. docs/pipeline.md has the table; a test compares.

Names follow Spark's own sources (camel case, case-insensitive); values are text. Unknown options are refused by name,
so that a typing error does not silently read something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from warren.base.errors import Misuse
from warren.base.ids import UINT64_MAX, Epoch
from warren.pipeline.schema import TableView

OPTIONS: dict[str, str] = {  # name → meaning: one row of the table each
    "path": "the log directory, or the data directory it is in, as the driver and every executor see it",
    "view": "`entries` (the raw log, the default), `kv` (the newest value of every key) or `damage`",
    "asOf": "an epoch, or a time in ISO 8601 (without a zone: UTC); the last epoch that counts",
    "fromEpoch": "the first epoch that counts (`entries`); a stream begins with it",
    "toEpoch": "the last epoch that counts (`entries`)",
    "onDamage": "`fail` (the default) or `skip`: leave out what is damaged; view `damage` lists it",
    "pinSeconds": "how long the pin of this read holds its files without renewal; 3600, `0`: no pin is taken",
    "partitionBytes": "about how much of a file one task reads (`entries`); 134217728",
    "buckets": "number of tasks the keys are partitioned into (`kv`); default: one for every two million entries",
    "pushdown": "`true`: take filters on `epoch` from Spark, which must have `spark.sql.python.filterPushdown.enabled`",
    "maxEpochsPerTrigger": "most epochs of one micro-batch (streams)",
    "maxBytesPerTrigger": "about how many bytes one micro-batch has at most (streams); one epoch always goes whole",
    "credentials": "`false` (the default): rows of users are shown without their password hashes; `true`: with them",
    "failOnDataLoss": "`true` (the default): a stream behind the horizon fails; `false`: it resumes at the horizon",
}
ENTRIES_PER_BUCKET = 2_000_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    path: str
    view: TableView = TableView.ENTRIES
    as_of_epoch: Epoch | None = None
    as_of_ns: int | None = None  # wall time
    from_epoch: Epoch | None = None
    to_epoch: Epoch | None = None
    skips_damage: bool = False
    pin_seconds: float = 3600.0
    partition_bytes: int = 128 << 20
    buckets: int = 0  # 0: by size
    pushdown: bool = False
    epochs_per_trigger_max: int = 0  # 0: no limit
    bytes_per_trigger_max: int = 0
    fails_on_data_loss: bool = True
    shows_credentials: bool = False
    only_from: Epoch = Epoch(0)  # the part of the requested range that Spark's filters leave
    only_to: Epoch = Epoch(UINT64_MAX)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        return _OptionReader(given).options()


class _OptionReader:
    def __init__(self, given: Mapping[str, str]) -> None:
        names = {name.lower(): name for name in OPTIONS}
        for name in given:
            if name.lower() not in names:
                raise Misuse(f"'{name}' is no option of format warren", f"there are: {', '.join(OPTIONS)}")
        self._given = {names[name.lower()]: str(value).strip() for name, value in given.items()}

    def options(self) -> ReadOptions:
        path = self._given.get("path", "")
        if not path:
            raise Misuse("format warren needs a path", "name a log directory: .load('/var/lib/app/log')")
        as_of_epoch, as_of_ns = self._as_of()
        options = ReadOptions(
            path.removeprefix("file://"),
            TableView(self._choice("view", [view.value for view in TableView], TableView.ENTRIES)),
            as_of_epoch,
            as_of_ns,
            self._epoch("fromEpoch"),
            self._epoch("toEpoch"),
            self._choice("onDamage", ["fail", "skip"], "fail") == "skip",
            self._number("pinSeconds", 3600),
            self._number("partitionBytes", 128 << 20, least=1),
            self._number("buckets", 0),
            self._choice("pushdown", ["true", "false"], "false") == "true",
            self._number("maxEpochsPerTrigger", 0),
            self._number("maxBytesPerTrigger", 0),
            self._choice("failOnDataLoss", ["true", "false"], "true") == "true",
            self._choice("credentials", ["true", "false"], "false") == "true",
        )
        _check_together(options)
        return options

    def _as_of(self) -> tuple[Epoch | None, int | None]:
        text = self._given.get("asOf")
        if text is None:
            return None, None
        if text.isdecimal():
            return Epoch(int(text)), None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise Misuse(
                f"asOf is neither an epoch nor a time: '{text}'", "as in 4711 or 2026-01-31T12:00:00Z"
            ) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return None, (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000

    def _epoch(self, name: str) -> Epoch | None:
        return Epoch(self._number(name, 0)) if name in self._given else None

    def _number(self, name: str, usual: int, least: int = 0) -> int:
        text = self._given.get(name, str(usual))
        if not text.isdecimal() or int(text) < least:
            raise Misuse(f"{name} is not a whole number from {least} on: '{text}'")
        return int(text)

    def _choice(self, name: str, choices: list[str], usual: str) -> str:
        text = self._given.get(name, usual).lower()
        if text not in choices:
            raise Misuse(f"{name} is '{text}'", f"it may be {' or '.join(choices)}")
        return text


def _check_together(options: ReadOptions) -> None:
    has_as_of = options.as_of_epoch is not None or options.as_of_ns is not None
    if has_as_of and options.to_epoch is not None:
        raise Misuse("asOf and toEpoch both name the last epoch", "leave one of them out")
    if options.view is TableView.KV and (options.from_epoch is not None or options.to_epoch is not None):
        raise Misuse("view 'kv' shows a state, not a range of epochs", "use asOf")


def text_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark expects them: values as text, unset ones left out."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
