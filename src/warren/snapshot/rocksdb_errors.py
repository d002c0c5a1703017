"""RocksDB's errors in our families, as sentences. rocksdict raises bare exceptions with RocksDB's text in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import TracebackType

from rocksdict import DbClosedError

from warren.base.errors import Damage, DiskFailure, Locked, Misuse, OutOfRoom, Refused, WarrenError

REBUILD = "stop, remove the snapshot store's directory and start again: it is built anew from the log"
RESTART = "start again: the store is set aside and built anew, if the log has everything"
NO_SUCH_FILE = "No such file or directory"
_FILE_AND_OFFSET = re.compile(r" in (\S+\.sst) offset (\d+)")

# Part of RocksDB's text → family, hint. The first that occurs counts.
FAMILIES: tuple[tuple[str, type[WarrenError], str], ...] = (
    ("No space left on device", OutOfRoom, "free some space on this disk, then resume"),
    ("Disk quota exceeded", OutOfRoom, "the user's disk quota is used up: raise it or free some space, then resume"),
    ("File too large", OutOfRoom, "a limit on the size of files is in force (`ulimit -f`): raise it, then resume"),
    ("lock hold by current process", Locked, "close the other opener of this snapshot store first"),
    ("While lock file", Locked, "another process holds this snapshot store: stop it first"),
    ("Corruption", Damage, RESTART),
    ("not an sstable", Damage, RESTART),
    ("bad magic number", Damage, RESTART),
    ("File exists (os error 17)", Refused, "a file stands where the store's directory should be: move it away"),
    ("Not a directory", Refused, "a file stands where a directory is needed: move it away"),
    ("Permission denied", Refused, "give this user access, or start as the user who owns the directory"),
    (NO_SUCH_FILE, Refused, "check the path"),
    ("strict ascending order", Misuse, "merge and sort the entries first: one for each key, by storage and key"),
    ("Invalid argument", Refused, "the directory holds a RocksDB store that is not a snapshot store of Warren"),
)
UNFORESEEN = (DiskFailure, "look at dmesg, at the disk's health and at the file LOG in the store's directory")


def translate(error: Exception, operation: str) -> WarrenError:
    """Our error for RocksDB's. `operation` is a verb: it stands behind "cannot"."""
    text = " ".join(str(error).split())
    if isinstance(error, DbClosedError):
        return Misuse(f"cannot {operation}: it is closed", "open it again")
    family, hint = next(((family, hint) for part, family, hint in FAMILIES if part in text), UNFORESEEN)
    if family is Damage:
        place = _FILE_AND_OFFSET.search(text)
        return Damage(f"cannot {operation}: {text}", place[1] if place else "", int(place[2]) if place else 0, hint)
    return family(f"cannot {operation}: {text}", hint)


class rocksdb_calls:
    """Lets no error of rocksdict pass untranslated. `on_damage` gets damage before the caller does."""

    __slots__ = ("_on_damage", "_operation")

    def __init__(self, operation: str, on_damage: Callable[[Damage], None] | None = None) -> None:
        self._operation = operation
        self._on_damage = on_damage

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, WarrenError):
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> WarrenError:
        """Apart from the frame that raises: an error that its own frame holds keeps RocksDB open."""
        translated = translate(error, self._operation)
        if isinstance(translated, Damage) and self._on_damage is not None:
            self._on_damage(translated)
        return translated
