"""The part of `verify` that looks at everything but the log files: manifest, epoch files, and what else lies about."""

from __future__ import annotations

from warren.base.errors import Damage
from warren.durability.epoch_file import SLOT_BYTES, decode_slot
from warren.files.atomic import SUFFIX
from warren.files.protocol import Files, base_name, join
from warren.log.file_lookup import read_epoch_files
from warren.log.layout import EPOCH, MANIFEST, PINS, QUARANTINE, RECYCLE, STAGING, epoch_of_name, is_wal
from warren.log.manifest import read_manifest
from warren.log.manifest_state import ManifestState
from warren.log.opening import newest_witness
from warren.log.pins import PIN_SUFFIX
from warren.log.quarantine import quarantine_bytes
from warren.log.reading import ReadOnlyLog
from warren.log.verify_report import VerifyReport
from warren.records.block import FileIdentity, Header, look
from warren.records.walk import extent, next_good, walk


def check_directory(files: Files, directory: str, report: VerifyReport) -> ReadOnlyLog | None:
    """Manifest and epoch files; None if they do not say enough to go on."""
    path = join(directory, MANIFEST)
    try:
        before = read_manifest(files, directory)
    except Damage as error:
        report.damage(error.path or path, error.offset, error.what)
        return None
    torn_at = _check_edits(files, path, report)
    _check_epoch_files(files, directory, report)
    witness, _ = newest_witness(files, directory, before)
    state = read_manifest(files, directory)
    if witness is not None and state.edits < witness.manifest_edits:
        what = f"the manifest ends with edit {state.edits}, {witness.manifest_edits} were synced"
        report.damage(path, torn_at, what)
        return None
    if witness is None and state.durable > 0 and not state.is_cut:
        report.warn(
            join(directory, EPOCH), 0, "there is no whole witness: the manifest and the log speak for themselves"
        )
    return ReadOnlyLog(files, directory, state, witness)


def check_surroundings(files: Files, log: ReadOnlyLog, report: VerifyReport) -> None:
    """Files nobody knows, leftovers, pins."""
    directory, names = log.directory, files.list(log.directory)
    known = {record.name for state in (log.state, read_manifest(files, directory)) for record in state.files.values()}
    for name in names:
        if is_wal(name) and name not in known:
            report.warn(join(directory, name), 0, "a log file that the manifest does not know; opening sets it aside")
        elif name.endswith(SUFFIX):
            report.note(join(directory, name), 0, "left over from a replacement that did not come to its end")
    for home in (STAGING, RECYCLE):
        for name in files.list(join(directory, home)) if files.exists(join(directory, home)) else ():
            report.note(join(directory, home, name), 0, f"in {home}")
    for name in files.list(join(directory, PINS)) if files.exists(join(directory, PINS)) else ():
        if name.endswith(PIN_SUFFIX):
            report.note(join(directory, PINS, name), 0, "a pin holds files")
    if size := quarantine_bytes(files, directory):
        report.note(join(directory, QUARANTINE), 0, f"{size} bytes are kept in quarantine")
    _note_voided(log.state, directory, report)


def _check_edits(files: Files, path: str, report: VerifyReport) -> int:
    """Is there anything behind the last whole edit? Where it begins."""
    file = files.open(path)
    try:
        view = memoryview(file.read_at(0, file.size()))
    finally:
        file.close()
    first = look(view, 0, None)
    if not isinstance(first, Header):
        return 0
    identity = FileIdentity(first.timeline, first.incarnation)
    end = walk(view, identity).end
    if extent(view, end) > end:
        behind = next_good(view, identity, end)
        if behind is not None:
            report.damage(path, end, f"a manifest edit is damaged; edit {behind.first} stands whole behind it")
        else:
            report.warn(path, end, "the last manifest edit is torn: it was never answered, or it is damaged")
    return end


def _check_epoch_files(files: Files, directory: str, report: VerifyReport) -> None:
    for path, raw in read_epoch_files(files, directory):
        named = epoch_of_name(base_name(path))
        slots = [raw[:SLOT_BYTES], raw[SLOT_BYTES:]]
        found = [decode_slot(slot) for slot in slots]
        for index, slot in enumerate(slots):
            if found[index] is None and any(slot):
                report.warn(path, index * SLOT_BYTES, f"slot {index} of the epoch file is damaged")
        newest = max((witness.durable for witness in found if witness is not None), default=None)
        if named is not None and newest is not None and newest > named:
            report.damage(path, 0, f"the epoch file was rotated at epoch {named} and says {newest}")


def _note_voided(state: ManifestState, directory: str, report: VerifyReport) -> None:
    for record in state.files.values():
        for voided in record.voided:
            what = f"voided up to byte {voided.end}: {voided.reason}"
            report.note(join(directory, record.name), voided.start, what)
