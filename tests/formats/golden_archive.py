"""Packs and unpacks the golden archives: `.tar.xz` files beside this module, each made once and never again."""

from __future__ import annotations

import tarfile
from pathlib import Path

from warren.base.errors import Misuse

ARCHIVES = Path(__file__).parent
LOCK_NAMES = ("LOG", "LOCK", "lock")  # RocksDB's info log and lock files: not part of the format


def check_absent(archive: Path) -> None:
    if archive.exists():
        raise Misuse(f"{archive} exists already", "a golden directory is made once; name the archive of a new version")


def pack(archive: Path, home: Path) -> None:
    """Sockets are left out as well: they belong to a running process."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for path in sorted(home.rglob("*")):
            if path.name.partition(".")[0] not in LOCK_NAMES and (path.is_file() or path.is_dir()):
                packed.add(path, path.relative_to(home), recursive=False)


def unpack(archive: Path, target: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    return target
