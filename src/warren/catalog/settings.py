"""Where the catalog's SQL database is. Documented in docs/operating.md; a test compares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    connect: str = ""  # connect string of the SQL database; empty: SQLite, in the directory of the database
    catalog: str = "warren"  # name of the SQL database; of SQLite the name of the file, unless `connect` names one
