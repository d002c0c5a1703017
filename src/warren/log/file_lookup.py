"""Finding and opening files of a log directory beside the process that renames and removes them.

    locate        open under each name the file can have ──▶ compare number and incarnation in its first block
                  nothing identified ──▶ read the manifest: purged ⇒ `Gone`; else try again, a bounded number of times

A rotation renames `pwal_0000` to `pwal_0000.<number>` and creates the next file under the old name; a purge removes a
file, or hands it to the recycle pool, where it gets another incarnation. So a path that was found a moment ago names
nothing, or another file. Every reader therefore opens first and identifies what it has opened: an open file keeps its
bytes whatever becomes of its name. A file moves from its active name to its rotated one, once, and the names are tried
in that order: a file that is there is found in the first pass.

Epoch files are renamed and removed in the same way: `read_epoch_files` lists them again when one was.

A file without a readable header is opened by its name alone (`is_identified` is False): scans judge such bytes, all
others take `open_record`, which refuses them.
"""

from __future__ import annotations

from typing import NamedTuple

from warren.base.errors import Damage, Gone, NotFound
from warren.base.ids import Epoch
from warren.durability.epoch_file import FILE_BYTES, witness_in
from warren.files.protocol import File, Files, join
from warren.log.file_header import FILE_HEADER_BYTES, FileKind, read_file_header
from warren.log.file_record import FileRecord, FileState
from warren.log.layout import EPOCH, active_name, epoch_of_name, rotated_name
from warren.log.manifest import read_manifest

TRIES = 3


class OpenLogFile(NamedTuple):
    """An open file of the log; the caller closes it."""

    file: File
    path: str
    is_identified: bool  # its first block has the number and the incarnation of the record

    def map(self) -> tuple[memoryview, str]:
        """A view of the whole file, which stays valid when the file is closed; and where it was opened."""
        try:
            return self.file.view(), self.path
        finally:
            self.file.close()


def locate(files: Files, directory: str, record: FileRecord) -> OpenLogFile | None:
    """Open a file of the manifest under the name it has now. None: it is missing. `Gone`: a purge has removed it."""
    for left in reversed(range(TRIES)):
        found = _open_under_any_name(files, directory, record)
        if found is not None and found.is_identified:
            return found
        horizon = horizon_if_gone(files, directory, record)
        if found is not None and (left or horizon is not None):
            found.file.close()
        if horizon is not None:
            hint = f"begin at epoch {horizon + 1} or later"
            raise Gone(f"log file {record.number} is gone, horizon is {horizon}", hint)
    return found


def open_by_name(files: Files, directory: str, record: FileRecord) -> OpenLogFile:
    """The same for a caller that judges the bytes itself: without a readable header, the file that has the name."""
    found = locate(files, directory, record)
    if found is None:
        raise Damage(f"log file {record.number} ({record.name}) is missing", join(directory, record.name), 0)
    return found


def open_record(files: Files, directory: str, record: FileRecord) -> OpenLogFile:
    """The same for a caller that relies on it: the file that the record describes, or `Damage`."""
    found = open_by_name(files, directory, record)
    if not found.is_identified:
        found.file.close()
        raise Damage(f"log file {record.number} does not begin with its file header", found.path, 0)
    return found


def find_file(files: Files, directory: str, record: FileRecord) -> str:
    """The path of a file while nothing renames it: for the holder of the directory lock."""
    found = open_record(files, directory, record)
    found.file.close()
    return found.path


def horizon_if_gone(files: Files, directory: str, record: FileRecord) -> Epoch | None:
    """The horizon, if the manifest no longer names the file or has marked it for removal; else None."""
    try:
        now = read_manifest(files, directory)
    except NotFound:
        return None
    known = now.files.get(record.number)
    return now.horizon if known is None or known.state is FileState.DOOMED else None


def read_epoch_files(files: Files, directory: str) -> list[tuple[str, bytes]]:
    """Path and bytes of every epoch file. The listing is repeated when a file was renamed or removed behind it, or when
    the active one has no witness yet: the one it replaces may have got its name after the listing."""
    found: list[tuple[str, bytes]] = []
    names: list[str] = []
    for _ in range(TRIES):
        before, names = names, [n for n in files.list(directory) if n == EPOCH or epoch_of_name(n) is not None]
        if before and before == names:
            break
        found, is_settled = [], False
        for name in names:
            path = join(directory, name)
            try:
                file = files.open(path)
            except NotFound:
                is_settled = False
                continue
            try:
                raw = file.read_at(0, FILE_BYTES)
            finally:
                file.close()
            found.append((path, raw))
            is_settled = is_settled if name != EPOCH else witness_in(raw, path)[0] is not None
        if is_settled and len(found) == len(names):
            break
    return found


def _open_under_any_name(files: Files, directory: str, record: FileRecord) -> OpenLogFile | None:
    by_name: OpenLogFile | None = None
    for name in _names(record):
        path = join(directory, name)
        try:
            file = files.open(path)
        except NotFound:
            continue
        try:
            is_identified = _is_identified(file, path, record)
        except BaseException:
            file.close()
            raise
        if is_identified:
            if by_name is not None:
                by_name.file.close()
            return OpenLogFile(file, path, True)
        if is_identified is None and by_name is None and _may_be_called(record, name):
            by_name = OpenLogFile(file, path, False)
        else:
            file.close()
    return by_name


def _names(record: FileRecord) -> list[str]:
    """The names a file can have. One that is being written gets its rotated name next; one that is sealed keeps it, but
    while the holder of the lock seals it, it still has the active one."""
    if record.purpose is not FileKind.LOG:
        return [record.name]
    active, rotated = active_name(record.channel), rotated_name(record.channel, record.number)
    return [active, rotated] if record.state is FileState.ACTIVE else [record.name, active]


def _may_be_called(record: FileRecord, name: str) -> bool:
    """The active name belongs to another file once this one is sealed."""
    return name == record.name or name == rotated_name(record.channel, record.number)


def _is_identified(file: File, path: str, record: FileRecord) -> bool | None:
    """False: it is another file. None: the header is unreadable, or names another incarnation of the number."""
    try:
        header, identity = read_file_header(memoryview(file.read_at(0, FILE_HEADER_BYTES)), path)
    except Damage:
        return None
    if header.number != record.number:
        return False
    return True if identity == record.identity else None
