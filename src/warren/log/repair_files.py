"""New files for damaged ones: the good blocks, each at its own place, zeros where something was voided.

    staging/repair-<number>   written and synced       the old file gets a second name in quarantine/
    manifest                  says what is voided      (a crash here leaves the old file, voided: as good)
    rename                    the new file takes over the name; the old one lives on in quarantine, links and mappings

A file whose header is damaged, or that is missing, cannot do without: its header is written anew from what the manifest
knows. It then differs from the one that was there, so it counts as voided too.
"""

from __future__ import annotations

from warren.base.errors import Damage
from warren.files.protocol import Files, join, parent
from warren.log.file_header import FILE_HEADER_BYTES, FileHeader, FileKind, read_file_header
from warren.log.file_record import FileRecord
from warren.log.layout import QUARANTINE, STAGING
from warren.log.quarantine import free_name
from warren.log.repair_plan import FileRepair
from warren.log.scan import counted
from warren.records.walk import extent


def lacks_header(repair: FileRepair) -> bool:
    """Is there no readable header at the file's beginning? Its bytes are voided then, or will be."""
    try:
        read_file_header(repair.scan.view, repair.scan.path)
    except Damage:
        return True
    return False


def has_voided_bytes(repair: FileRepair) -> bool:
    """Does anything but zeros stand where something is voided? A header written anew does not count."""
    view = repair.scan.view
    for part in repair.record.voided:
        start = max(part.start, FILE_HEADER_BYTES)
        if extent(view[: part.end], start) > start:
            return True
    return False


def stage(files: Files, directory: str, repair: FileRepair, container_bytes: int) -> str:
    """Write the new file; its path in staging."""
    record, view = repair.record, repair.scan.view
    path = join(directory, STAGING, f"repair-{record.number}")
    if files.exists(path):
        files.remove(path)
    file = files.create(path)
    try:
        file.allocate(0, record.end)
        for start, stop in counted(record, record.end):
            file.write_at(start, [view[start:stop]])
        header = _new_header(record, container_bytes) if lacks_header(repair) else view[:FILE_HEADER_BYTES]
        file.write_at(0, [header])
        file.sync()
    finally:
        file.close()
    files.sync_directory(parent(path))
    return path


def swap_in(files: Files, directory: str, staged: str, record: FileRecord) -> str | None:
    """Let the new file take over the name. The old one's name in quarantine, or None if there was none."""
    path = join(directory, record.name)
    kept = None
    if files.exists(path):
        kept = join(directory, QUARANTINE, free_name(files, directory, record.name))
        files.link(path, kept)
        files.sync_directory(parent(kept))
    files.rename(staged, path)
    files.sync_directory(parent(path))
    return kept


def set_aside(files: Files, directory: str, record: FileRecord) -> str | None:
    """Move a file that is no longer part of the store to quarantine, wherever it stood."""
    path = join(directory, record.name)
    if not files.exists(path):
        return None
    kept = join(directory, QUARANTINE, free_name(files, directory, record.name.replace("/", "-")))
    files.rename(path, kept)
    files.sync_directory(parent(kept))
    files.sync_directory(parent(path))
    return kept


def _new_header(record: FileRecord, container_bytes: int) -> bytes:
    size = container_bytes if record.purpose is FileKind.LOG else 0
    header = FileHeader(record.number, record.channel, record.purpose, size, record.first_wall_ns)
    return header.placed(record.identity)[0]
