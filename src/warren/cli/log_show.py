"""Commands that show a log directory. They take no lock and change nothing; a store may run in it.

warren log inspect DIR     files with their life cycle, pins, horizon, timeline
warren log dump DIR        durable entries as stored, oldest file first
warren log follow DIR      entries as they become durable; the directory is watched (inotify)
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.output import AsJson, Credentials, Directory, print_json, print_line, size, table

if TYPE_CHECKING:
    from warren.log.file_record import FileRecord
    from warren.log.read.blocks import FileScan
    from warren.log.read.read_only import ReadOnlyLog
    from warren.log.read.tail import TailBlock
    from warren.records.columns import EntryColumns


def inspect(
    directory: Directory,
    as_json: AsJson = False,
    epoch: Annotated[
        int | None, typer.Option("--epoch", min=1, help="Show how this epoch was closed: its participants and digest.")
    ] = None,
) -> None:
    """List the files of a log directory with life cycle, pins, horizon, timeline and witness. Changes nothing."""
    from warren.files.local import LocalFiles
    from warren.log.read.read_only import open_for_reading

    log = open_for_reading(LocalFiles(), directory)
    found = {**_overview(log), "pins": _pins(log)}
    found["files"] = _files(log, found["problems"])
    if epoch is not None:
        found["epoch"] = _closing(log, epoch)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _overview(log: ReadOnlyLog) -> dict[str, Any]:
    from warren.log.recovery import quarantine_alarm, quarantine_bytes
    from warren.log.settings import LogSettings

    state, witness = log.state, log.witness
    alarm = quarantine_alarm(log.files, log.directory, LogSettings().quarantine_bytes_max)
    return {
        "directory": log.directory,
        "durable": log.durable,
        "horizon": state.horizon,
        "timeline": f"{state.timeline.id:016x}",
        "ancestry": [
            {"timeline": f"{item.timeline:016x}", "fork_epoch": item.fork_epoch} for item in state.timeline.ancestry
        ],
        "witness": None
        if witness is None
        else {
            "durable": witness.durable,
            "digest": witness.digest.hex(),
            "manifest_edits": witness.manifest_edits,
            "wall": _moment(witness.wall_ns),
            "ends": {end.number: end.end for end in witness.ends},
        },
        "manifest_edits": state.edits,
        "epoch_floor": state.epoch_floor,
        "compacted": state.compacted,
        "snapshot": state.snapshot,
        "snapshot_epoch": state.snapshot_epoch,
        "streams": [
            {"id": stream.id, "name": stream.name, "channel": stream.channel, "base": stream.base}
            for stream in state.streams.values()
        ],
        "quarantine_bytes": quarantine_bytes(log.files, log.directory),
        "problems": [*log.problems, *([alarm] if alarm else [])],
    }


def _files(log: ReadOnlyLog, problems: list[str]) -> list[dict[str, Any]]:
    """Every file of the manifest. The life cycle follows the default retention: settings are not in the directory. The
    manifest has no figures of an active file: its durable blocks are counted; an error in that is a problem."""
    from warren.base.environment import SystemClock
    from warren.log.retention import lifecycle_states
    from warren.log.settings import LogSettings

    settings = LogSettings()
    found = lifecycle_states(
        log.state,
        _every_pin(log),
        SystemClock().wall_ns(),
        settings.retention_seconds,
        settings.retention_bytes,
    )
    records = [(number, _counted(log, record, problems)) for number, record in sorted(log.state.files.items())]
    return [
        {
            "number": number,
            "name": record.name,
            "purpose": record.purpose.name.lower(),
            "state": record.state.value,
            "life": found[number].value,
            "bytes": record.end,
            "entries": record.entries,
            "first_epoch": record.first_epoch,
            "last_epoch": record.last_epoch,
            "sources": list(record.sources),
            "voided": [{"start": v.start, "end": v.end, "reason": v.reason} for v in record.voided],
        }
        for number, record in records
    ]


def _counted(log: ReadOnlyLog, record: FileRecord, problems: list[str]) -> FileRecord:
    """The record; for an active file with the figures of its durable blocks."""
    from warren.base.errors import WarrenError
    from warren.base.ids import Epoch
    from warren.log.file_record import FileState
    from warren.log.read.parts import entry_blocks

    if record.state is not FileState.ACTIVE:
        return record
    try:
        scan = log.input_of(record).scan()
    except WarrenError as error:
        problems.append(f"{record.name}: its entries cannot be counted: {error.what}")
        return record
    headers = [block.header for block in entry_blocks(scan, Epoch(0), log.durable)]
    if not headers:
        return record.changed(end=scan.end)
    first, last = headers[0].epoch, headers[-1].epoch
    entries = sum(header.entries for header in headers)
    return record.changed(end=scan.end, entries=entries, first_epoch=first, last_epoch=last)


def _pins(log: ReadOnlyLog) -> list[dict[str, Any]]:
    return [
        {"id": pin.id, "reader": pin.reader, "from_epoch": pin.from_epoch, "files": list(pin.files),
         "expires": _moment(pin.expires_ns), "bytes_max": pin.bytes_max}
        for pin in _every_pin(log)
    ]  # fmt: skip


def _every_pin(log: ReadOnlyLog) -> list[Any]:
    from warren.base.environment import SystemClock, SystemRandom
    from warren.log.retention import Pins

    return list(Pins(log.files, log.directory, SystemClock(), SystemRandom()).every())


def _closing(log: ReadOnlyLog, epoch: int) -> dict[str, Any]:
    """The closing block of an epoch, in whichever file it is."""
    from warren.base.errors import Gone, Refused
    from warren.log.check.verify_chain import closings_in
    from warren.log.file_record import FileKind

    if epoch <= log.state.horizon:
        raise Gone(f"epoch {epoch} is gone, horizon is {log.state.horizon}")
    for record in log.records():
        if record.purpose is FileKind.LOG:
            for copy in closings_in(log.input_of(record).scan()):
                if copy.closing.epoch == epoch:
                    closing = copy.closing
                    return {
                        "epoch": epoch,
                        "previous": closing.previous,
                        "digest": closing.digest(record.timeline).hex(),
                        "wall": _moment(closing.wall_ns),
                        "parts": [{"file": p.file, "end": p.end, "blocks": p.blocks} for p in closing.parts],
                    }
    raise Refused(f"there is no durable epoch {epoch}", f"the newest is {log.durable}; numbers jump at a restart")


def _moment(wall_ns: int) -> str | None:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).isoformat(timespec="milliseconds") if wall_ns else None


def _show(found: dict[str, Any]) -> None:
    print_line(
        f"{found['directory']}: durable up to epoch {found['durable']}, history from epoch {found['horizon'] + 1} on"
    )
    print_line(f"timeline {found['timeline']}")
    for item in found["ancestry"]:
        print_line(f"  came from timeline {item['timeline']} at epoch {item['fork_epoch']}")
    witness = found["witness"]
    print_line(f"witness: epoch {witness['durable']}, {witness['wall']}" if witness else "witness: none")
    print_line(
        f"manifest: {found['manifest_edits']} edits; snapshot of epoch {found['snapshot_epoch']}" + _quarantined(found)
    )
    rows = [
        (f["number"], f["name"], f["state"], f["life"], size(f["bytes"]), f["entries"], _epochs(f), len(f["voided"]))
        for f in found["files"]
    ]
    table("files", ("number", "name", "state", "life", "size", "entries", "epochs", "voided"), rows)
    for file in found["files"]:
        for voided in file["voided"]:
            print_line(f"voided: {file['name']} bytes {voided['start']} … {voided['end']}: {voided['reason']}")
    for pin in found["pins"]:
        print_line(f"pin {pin['id']}: {pin['reader']} until {pin['expires']}, from epoch {pin['from_epoch']}")
    for problem in found["problems"]:
        print_line(f"warning: {problem}")
    if "epoch" in found:
        closing = found["epoch"]
        print_line(
            f"epoch {closing['epoch']} follows {closing['previous']}, digest {closing['digest']}, {closing['wall']}"
        )
        for part in closing["parts"]:
            print_line(f"  file {part['file']}: {part['blocks']} blocks up to byte {part['end']}")


def _quarantined(found: dict[str, Any]) -> str:
    size_bytes = found["quarantine_bytes"]
    return f"; {size(size_bytes)} in quarantine" if size_bytes else ""


def _epochs(file: dict[str, Any]) -> str:
    return f"{file['first_epoch']} … {file['last_epoch']}" if file["entries"] else "–"


SHOWN_BYTES_MAX = 40


def dump(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per entry, bytes as hex.")] = False,
    epoch: Annotated[int | None, typer.Option("--epoch", min=0, help="Only entries of this epoch.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Most entries printed.")] = None,
    credentials: Credentials = False,
) -> None:
    """Print the durable entries of a log directory. Changes nothing; stops at damage."""
    from warren.files.local import LocalFiles
    from warren.log.file_record import FileKind
    from warren.log.read.read_only import open_for_reading

    log = open_for_reading(LocalFiles(), directory)
    records = [record for record in log.records() if record.purpose is not FileKind.SNAPSHOT]
    scans = (log.input_of(record).scan() for record in records)
    entries = (entry for scan in scans for entry in _dumped_entries(scan, epoch, log.durable, credentials))
    for entry in islice(entries, limit):
        sys.stdout.write((json.dumps(as_object(entry)) if as_json else as_line(entry)) + "\n")


def _dumped_entries(scan: FileScan, epoch: int | None, durable: int, credentials: bool) -> Iterator[dict[str, Any]]:
    from warren.base.ids import Epoch
    from warren.log.read.scan import entries_of

    first, last = (0, durable) if epoch is None else (epoch, min(epoch, durable))
    for columns in entries_of(scan, Epoch(last), Epoch(first)):
        yield from rows_of(columns, scan.record.name, credentials)


def rows_of(columns: EntryColumns, name: str, credentials: bool) -> Iterator[dict[str, Any]]:
    """Each entry; rows of users without password hashes, unless `credentials`."""
    from warren.catalog.rows import without_credentials

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
    from warren.log.settings import EntryKind

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


def follow(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per entry, bytes as hex.")] = False,
    from_epoch: Annotated[
        int | None, typer.Option("--from-epoch", min=1, help="Begin with this epoch, not with the next one.")
    ] = None,
    credentials: Credentials = False,
) -> None:
    """Print the entries of a log directory as they become durable. Changes nothing; ends with SIGINT or SIGTERM."""
    from warren.base.ids import Epoch
    from warren.files.local import LocalFiles
    from warren.log.read.read_only import changes
    from warren.log.read.tail import Follower

    follower = Follower(LocalFiles(), directory, None if from_epoch is None else Epoch(from_epoch - 1))
    with until_signalled() as ended:
        for _ in changes(directory, ended):
            for block in follower.read():
                for entry in _entries(block, credentials):
                    sys.stdout.write((json.dumps(as_object(entry)) if as_json else as_line(entry)) + "\n")
            sys.stdout.flush()


@contextmanager
def until_signalled() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets."""
    ended = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: ended.set()) for number in numbers]
    try:
        yield ended
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _entries(block: TailBlock, credentials: bool) -> Iterator[dict[str, Any]]:
    from warren.base.ids import file_of_lsn

    return rows_of(block.columns, f"file {file_of_lsn(block.first)}", credentials)
