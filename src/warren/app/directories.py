"""Where the store lives: `--data-dir`, `--store-dir` and `--no-data-dir`, as the seed's plugin had them.

--store-dir S            S
--data-dir D             D, unless --store-dir says otherwise
--no-data-dir            there is no directory to fall back on: --store-dir must be given
"""

from __future__ import annotations

from warren.base.errors import Misuse


def store_directory(data_dir: str | None, store_dir: str | None, no_data_dir: bool) -> str:
    """The directory of the log store."""
    if no_data_dir and data_dir is not None:
        raise Misuse("--data-dir and --no-data-dir contradict each other", "give one of them")
    if store_dir is not None:
        return store_dir
    if no_data_dir:
        raise Misuse("with --no-data-dir there is no place for the store", "name one with --store-dir")
    if data_dir is None:
        raise Misuse("no directory was given", "name one with --data-dir or --store-dir")
    return data_dir
