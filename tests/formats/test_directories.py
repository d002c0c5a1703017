"""A store written by any version opens today."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.formats.make_directory import ARCHIVE, SETTINGS, STATE, STREAM
from warren.log.store import LogStore

ARCHIVES = sorted(Path(__file__).parent.glob("v*.tar.xz"))


def test_the_present_version_has_its_golden_directory() -> None:
    assert ARCHIVE in ARCHIVES


@pytest.mark.parametrize("archive", ARCHIVES, ids=[path.stem for path in ARCHIVES])
def test_a_golden_directory_opens_with_its_contents(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    for _ in range(2):  # and once more, from what the first opening made of it
        with LogStore.open(str(tmp_path), SETTINGS) as store:
            assert {(row.storage, row.key): row.value for row in store.snapshot().cursor()} == STATE
            records = [value for _, columns in store.stream("audit").read() for value in columns.values.to_list()]
            assert records == STREAM
    assert list((tmp_path / "quarantine").iterdir()), "the torn tail is kept, not served"
