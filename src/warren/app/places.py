"""Where a broker keeps things, from what its command line says. Nothing is opened or made here.

    --store-dir S     S              log, snapshot store, message stores; and the SQL catalog, unless that is elsewhere
    --data-dir D      D              the same, unless --store-dir says otherwise                              (OP-03)
    --no-data-dir     --store-dir    must be given then                                                       (OP-04)
    none of them      WARREN_DATA_DIR, else `warren` where this user's programs keep their data

    --connect URL     the SQL database system, or a file of SQLite                                            (OP-01)
    --catalog NAME    which database there: a file catalog/NAME.sqlite, or a database of PostgreSQL           (OP-02)
    --catalog URL     both in one
    --force           what the log does not cover is made of what the log has                                 (C-21)

Always true: what is printed of it has no password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from warren.app.directories import store_directory
from warren.base.chance import Random
from warren.base.errors import Misuse
from warren.catalog.connect_string import is_connect_string
from warren.catalog.database import place_of
from warren.catalog.settings import CatalogSettings
from warren.catalog.sql_database import SqlPlace
from warren.files.protocol import Files, join


class MachineCatalogs(Protocol):
    """What is needed of a `Machine`."""

    @property
    def files(self) -> Files: ...

    @property
    def chance(self) -> Random: ...


@dataclass(frozen=True, slots=True)
class CatalogLocation:
    directory: str  # of the database: the log, the stores, and what was set aside
    catalog: CatalogSettings

    def sql(self, machine: MachineCatalogs) -> SqlPlace:
        """Where the SQL catalog is."""
        return place_of(machine.files, machine.chance, self.directory, self.catalog)


def resolve_places(
    data_dir: str | None = None,
    store_dir: str | None = None,
    no_data_dir: bool = False,
    connect: str = "",
    catalog: str = "",
    environment: Mapping[str, str] | None = None,
    is_forced: bool = False,
) -> CatalogLocation:
    """From the options of the command line, each as it was given. `environment`: the process's variables."""
    if data_dir is None and store_dir is None and not no_data_dir:
        data_dir = default_data_directory(environment or {})
    named = replace(catalog_settings(connect, catalog), is_forced=is_forced)
    return CatalogLocation(store_directory(data_dir, store_dir, no_data_dir), named)


def default_data_directory(environment: Mapping[str, str]) -> str:
    """Where things go if nobody says where."""
    if told := environment.get("WARREN_DATA_DIR"):
        return told
    if shared := environment.get("XDG_DATA_HOME"):
        return join(shared, "warren")
    if home := environment.get("HOME"):
        return join(home, ".local", "share", "warren")
    raise Misuse("no directory was given, and there is no home to put one in", "name one with --data-dir")


def catalog_settings(connect: str, catalog: str) -> CatalogSettings:
    """`--connect` and `--catalog`."""
    if is_connect_string(catalog):
        if connect:
            raise Misuse("--connect and --catalog both say which SQL database", "give --catalog a name, or only one")
        connect, catalog = catalog, ""
    return CatalogSettings(connect, catalog) if catalog else CatalogSettings(connect)
