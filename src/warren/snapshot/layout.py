"""Names in the directory of a database, all but the log's own (log/layout).

log/         the truth                               store.lock        held by whoever has the store open for writing
store/       the safe snapshot store                 reflection.sock   where reflection takes orders (control_socket)
buffer/      entries on their way                    secondary/        RocksDB's diary of whoever reads beside the owner
tables/      tables of a large backlog               set-aside/        stores that could not be used
store.damaged   what a read of the store has found, until the store is built again
"""

from __future__ import annotations

LOG = "log"
STORE = "store"
BUFFER = "buffer"
TABLES = "tables"
SET_ASIDE = "set-aside"
SECONDARY = "secondary"
STORE_LOCK = "store.lock"
STORE_DAMAGED = "store.damaged"
REFLECTION_SOCKET = "reflection.sock"
