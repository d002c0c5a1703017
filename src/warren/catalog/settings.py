"""Location of the catalog's SQL database. Documented in docs/configuration.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    # Connect string of the SQL database; empty: SQLite, in the directory of the database. May hold a password.
    connect: str = field(default="", repr=False)
    catalog: str = "warren"  # name of the SQL database, unless `connect` names one; of SQLite the name of the file
    is_forced: bool = False  # what the log does not cover is not refused but made of what the log has (--force)
