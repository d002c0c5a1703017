"""Names in the directory of a database, all but the log's own (log/layout).

log/         the truth                               store.lock        held by whoever has the store open for writing
store/       the safe snapshot store                 reflection.sock   where reflection takes orders (control_socket)
buffer/      entries on their way                    secondary/        RocksDB's diary of whoever reads beside the owner
tables/      tables of a large backlog               set-aside/        stores that could not be used
store.damaged   what a read of the store has found, until the store is built again
"""

from __future__ import annotations

from warren.base.errors import Refused
from warren.files.protocol import Files, base_name, join, parent
from warren.log.layout import MANIFEST

LOG = "log"
STORE = "store"
BUFFER = "buffer"
TABLES = "tables"
SET_ASIDE = "set-aside"
SECONDARY = "secondary"
STORE_LOCK = "store.lock"
STORE_DAMAGED = "store.damaged"
REFLECTION_SOCKET = "reflection.sock"


def log_directory(files: Files, directory: str) -> str:
    """The log of a data directory, or the directory itself: commands on a log take either."""
    inner = join(directory, LOG)
    is_log = files.exists(join(directory, MANIFEST)) or not files.exists(join(inner, MANIFEST))
    return directory if is_log else inner


def data_directory(files: Files, directory: str) -> str:
    """The data directory of a log, or the directory itself: commands on a database take either."""
    is_log = files.exists(join(directory, MANIFEST)) and not files.exists(join(directory, LOG, MANIFEST))
    outer = parent(directory.rstrip("/"))
    is_inner = base_name(directory.rstrip("/")) == LOG and is_database(files, outer)
    return outer if is_log and is_inner else directory


def is_database(files: Files, directory: str) -> bool:
    """Does a safe snapshot store belong to the log in this data directory?"""
    return files.exists(join(directory, LOG, MANIFEST)) and files.exists(join(directory, STORE))


def refuse_database(files: Files, log: str) -> None:
    """The log of a database holds what its safe snapshot store has not taken yet: a merge would lose that."""
    home = data_directory(files, log)
    if is_database(files, home):
        hint = (
            f"start it and run `warren compact --data-dir {home}`; stopped, `warren pipeline sync {home}` shortens it"
        )
        raise Refused(f"{home} is a database: what stays goes from its log to the safe snapshot store", hint)
