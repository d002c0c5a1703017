"""`warren log dump DIR`: the durable entries as they stand in the files, oldest file first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.output import Credentials, Directory

if TYPE_CHECKING:
    from warren.log.scan_verdict import FileScan
    from warren.records.columns import EntryColumns

SHOWN_BYTES_MAX = 40


def dump(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per entry, bytes as hex.")] = False,
    epoch: Annotated[int | None, typer.Option("--epoch", min=0, help="Only entries of this epoch.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="At most so many entries.")] = None,
    credentials: Credentials = False,
) -> None:
    """Print the durable entries of a log directory. Changes nothing; damage ends it."""
    from warren.files.local import LocalFiles
    from warren.log.file_header import FileKind
    from warren.log.reading import open_for_reading

    log = open_for_reading(LocalFiles(), directory)
    records = [record for record in log.records() if record.purpose is not FileKind.SNAPSHOT]
    scans = (log.input_of(record).scan() for record in records)
    entries = (entry for scan in scans for entry in _dumped_entries(scan, epoch, log.durable, credentials))
    for entry in islice(entries, limit):
        sys.stdout.write((json.dumps(as_object(entry)) if as_json else as_line(entry)) + "\n")


def _dumped_entries(scan: FileScan, epoch: int | None, durable: int, credentials: bool) -> Iterator[dict[str, Any]]:
    from warren.base.ids import Epoch
    from warren.log.scan import entries_of

    first, last = (0, durable) if epoch is None else (epoch, min(epoch, durable))
    for columns in entries_of(scan, Epoch(last), Epoch(first)):
        yield from rows_of(columns, scan.record.name, credentials)


def rows_of(columns: EntryColumns, name: str, credentials: bool) -> Iterator[dict[str, Any]]:
    """Each entry; rows of users without their password hashes, unless `credentials`."""
    from warren.catalog.credentials import without_credentials

    columns = columns if credentials else without_credentials(columns)
    assert columns.epochs is not None
    for row in range(columns.count):
        yield {
            "file": name,
            "epoch": columns.epochs.at(row),
            "kind": _kind(columns.kinds.at(row)),
            "storage": columns.storages.at(row),
            "version": [columns.majors.at(row), columns.minors.at(row)],
            "key": columns.keys.at(row),
            "value": columns.values.at(row),
        }


def _kind(number: int) -> str:
    from warren.log.entries import EntryKind

    return EntryKind(number).name.lower() if number in EntryKind._value2member_map_ else f"kind {number}"


def as_object(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "key": entry["key"].hex(), "value": entry["value"].hex()}


def as_line(entry: dict[str, Any]) -> str:
    version = "{}.{}".format(*entry["version"])
    key, value = _shown(entry["key"]), _shown(entry["value"])
    return (
        f"{entry['file']} epoch {entry['epoch']} {entry['kind']} storage {entry['storage']} @{version} {key} = {value}"
    )


def _shown(data: bytes) -> str:
    shown = repr(data[:SHOWN_BYTES_MAX])[1:]
    return shown if len(data) <= SHOWN_BYTES_MAX else f"{shown}… ({len(data)} bytes)"
