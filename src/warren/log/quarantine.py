"""Quarantine: what does not count is kept, not deleted.

`quarantine/` holds copies of voided bytes and whole files that nobody knows. It has its own budget: above it an alarm
is shown, and an operator decides.
"""

from __future__ import annotations

from contextlib import suppress

from warren.base.errors import NotFound
from warren.files.protocol import Buffer, Files, join
from warren.log.layout import QUARANTINE


def set_aside_bytes(files: Files, directory: str, name: str, data: Buffer) -> str:
    """Keep a copy of some bytes under a name that says where they were. Doing it twice keeps one copy."""
    path = join(directory, QUARANTINE, name)
    if files.exists(path) and files.stat(path).size_bytes == len(data):
        return path
    file = files.open(path, writable=True) if files.exists(path) else files.create(path)
    file.write_at(0, [data])
    file.sync()
    file.close()
    files.sync_directory(join(directory, QUARANTINE))
    return path


def set_aside_file(files: Files, directory: str, name: str) -> str:
    """Move a file of the directory into quarantine."""
    path = join(directory, QUARANTINE, free_name(files, directory, name))
    files.rename(join(directory, name), path)
    files.sync_directory(join(directory, QUARANTINE))
    files.sync_directory(directory)
    return path


def free_name(files: Files, directory: str, name: str) -> str:
    taken = set(files.list(join(directory, QUARANTINE)))
    number = 0
    while (candidate := f"{name}.{number}") in taken:
        number += 1
    return candidate


def quarantine_alarm(files: Files, directory: str, bytes_max: int) -> str | None:
    """What to tell an operator whose quarantine is over its budget; None if it is not."""
    kept = quarantine_bytes(files, directory)
    if kept <= bytes_max:
        return None
    home = join(directory, QUARANTINE)
    return f"{home} holds {kept} bytes, its budget is {bytes_max}: look at what is there, and remove what nobody wants"


def quarantine_shortage(files: Files, directory: str) -> str | None:
    """The alarm of a disk that is short of space while the quarantine takes some of it; None if it takes none."""
    kept = quarantine_bytes(files, directory)
    return f"the disk is short of space, and {join(directory, QUARANTINE)} keeps {kept} bytes" if kept else None


def quarantine_bytes(files: Files, directory: str) -> int:
    home = join(directory, QUARANTINE)
    total = 0
    for name in files.list(home) if files.exists(home) else ():
        with suppress(NotFound):  # an operator has removed it meanwhile
            total += files.stat(join(home, name)).size_bytes
    return total
