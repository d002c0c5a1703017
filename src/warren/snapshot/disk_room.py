"""Is there room again? Somebody who was turned away by a full disk tries with a file of his own before he goes on.

RocksDB can only be opened anew after such a failure, which closes every view of it: done in vain, once a second for as
long as the disk is full, it would leave readers nothing to read by.
"""

from __future__ import annotations

from warren.files.protocol import Files, join

PROBE = "room.probe"


def check_room(files: Files, directory: str, size_bytes: int) -> None:
    """Raise what the disk says if so much is written to it. Nothing of it stays."""
    path = join(directory, PROBE)
    if files.exists(path):
        files.remove(path)  # of a process that was killed
    file = files.create(path)
    try:
        file.allocate(0, size_bytes)
        file.sync()
    finally:
        file.close()
        files.remove(path)
