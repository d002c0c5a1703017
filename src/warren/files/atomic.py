"""Replace a small file as a whole: after a power cut it is the old or the new one, never a mix and never missing.

What a power cut leaves after each call

    remove old .tmp      the old file; perhaps the leftover .tmp still
    create .tmp          the old file; perhaps an empty .tmp
    write                the old file; perhaps a .tmp of any length, torn or zero-filled
    sync .tmp            the old file; perhaps a whole .tmp (syncing a file does not sync its name)
    rename over path     the old file or the new file, each whole: the bytes were synced before the name moved
    sync directory       the new file

Invariant: the rename happens only after the bytes are synced. Without that sync the rename may reach the disk first and
leave an empty file under the old name; without the directory's sync the call could return although a power cut brings
the old file back. A leftover `.tmp` has no meaning and is removed by the next call. Two concurrent callers for one path
are misuse: the directory lock excludes other processes, and inside one process every path has one owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from warren.base.errors import WarrenError
from warren.files.protocol import Buffer, Files, parent

SUFFIX = ".tmp"


def replace(files: Files, path: str, pieces: Sequence[Buffer]) -> None:
    """Make `path` hold exactly `pieces`, durably. When it raises, `path` is whole: the old one, or — only if the
    directory's sync failed — the old or the new."""
    temporary = path + SUFFIX
    if files.exists(temporary):
        files.remove(temporary)
    try:
        _write_synced(files, temporary, pieces)
        files.rename(temporary, path)
    except WarrenError:
        if files.exists(temporary):
            files.remove(temporary)  # free its space: the disk may be full
        raise
    files.sync_directory(parent(path))


def _write_synced(files: Files, path: str, pieces: Sequence[Buffer]) -> None:
    file = files.create(path)
    try:
        file.write_at(0, pieces)
        file.sync()
    finally:
        file.close()
