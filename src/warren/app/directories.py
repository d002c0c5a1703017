"""Where the store lives: `--data-dir`, `--store-dir` and `--no-data-dir`, as the seed's plugin had them.

--store-dir S            S
--data-dir D             D, unless --store-dir says otherwise
--no-data-dir            there is no directory to fall back on: --store-dir must be given

`warren.open` reads its path by the same rule: `~` is the home directory, an empty path is refused.
"""

from __future__ import annotations

from os import PathLike, fsdecode

from warren.base.errors import Misuse
from warren.files.local import expand_user


def store_directory(data_dir: str | None, store_dir: str | None, no_data_dir: bool) -> str:
    """The directory of the log store."""
    if no_data_dir and data_dir is not None:
        raise Misuse("--data-dir and --no-data-dir contradict each other", "give one of them")
    if store_dir is not None:
        return directory_path(store_dir)
    if no_data_dir:
        raise Misuse("with --no-data-dir there is no place for the store", "name one with --store-dir")
    if data_dir is None:
        raise Misuse("no directory was given", "name one with --data-dir or --store-dir")
    return directory_path(data_dir)


def directory_path(path: str | PathLike[str]) -> str:
    """A directory as it was named by a program, an option or the environment, none of which a shell has expanded."""
    try:
        text = fsdecode(path)
    except TypeError as error:
        raise Misuse(f"a path is a string or a path object, not {type(path).__name__}") from error
    if not text:
        raise Misuse("the path of the directory is empty", "name a directory; the present one is '.'")
    expanded = expand_user(text)
    if expanded.startswith("~"):
        raise Misuse(f"{text}: there is no such home directory", f"for a directory of that name write ./{text}")
    return expanded
