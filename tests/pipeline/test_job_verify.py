"""`verify` on Spark says what `verify` here says: on good stores, on damaged ones, and beside an owner at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import make_store, put, spoil
from tests.log.damaged_stores import KINDS, damaged_store, reported
from tests.log.forge import DIRECTORY
from tests.pipeline.test_beside_an_owner import owner_at_work
from warren.base.errors import Refused
from warren.base.threads import SystemThreads
from warren.files.local import LocalFiles
from warren.files.protocol import join
from warren.log.check.verify import VerifyReport
from warren.log.check.verify import verify as verify_here
from warren.pipeline.jobs.verify import verify
from warren.testing.memory_files import MemoryFiles

pytestmark = pytest.mark.spark


def here(directory: Path) -> VerifyReport:
    return verify_here(LocalFiles(), str(directory), SystemThreads())


def lay_out(files: MemoryFiles, source: str, target: Path) -> Path:
    """A memory disk's directory on the real one."""
    target.mkdir()
    for name in files.list(source):
        path = join(source, name)
        if files.stat(path).is_directory:
            lay_out(files, path, target / name)
        else:
            (target / name).write_bytes(files.contents(path))
    return target


def _is_hit(files: MemoryFiles) -> bool:
    """A damaged log file, or what a repair left of one."""
    report = verify_here(files, DIRECTORY, SystemThreads())
    return report.chain is not None and (not report.is_good or bool(report.chain.lost))


def test_a_good_store_gets_the_same_report(spark: Any, tmp_path: Path) -> None:
    """Nothing is found, and the chain is proved from what the tasks sent."""
    store = make_store(tmp_path)
    report = verify(spark, store.directory)
    assert report.is_good and reported(report) == reported(here(tmp_path))
    assert report.chain is not None and (report.chain.linked, report.chain.last) == (3, 3)


@pytest.mark.parametrize("hit", KINDS[1:])
def test_a_damaged_store_gets_the_same_report(spark: Any, tmp_path: Path, hit: str) -> None:
    """Finding for finding; tests/log/check/test_verify_plain.py does the same with many more, without Spark."""
    seeds = range(KINDS.index(hit), 1000, len(KINDS))
    files = next(files for seed in seeds if _is_hit(files := damaged_store(seed)[0]))
    directory = lay_out(files, DIRECTORY, tmp_path / "log")
    report = verify(spark, str(directory))
    assert reported(report) == reported(here(directory)) and report.findings


def test_each_file_is_checked_in_a_task_of_its_own_the_largest_first(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warren.pipeline.jobs import verify as job

    seen: list[int] = []

    def counted(session: Any, work: Any, tasks: Any, progress: Any) -> Any:
        seen.extend(record["end"] for task in tasks for record in task["records"])
        assert all(len(task["records"]) == 1 for task in tasks)
        return [work(task) for task in tasks]

    monkeypatch.setattr(job, "run_tasks", counted)
    make_store(tmp_path)
    report = verify(spark, str(tmp_path))
    assert seen == sorted((scan.record.end for scan in report.files), reverse=True) and len(set(seen)) > 1
    assert reported(report) == reported(here(tmp_path)), "in the order of the files, whichever was checked first"


def test_beside_an_owner_at_work_nothing_is_damage(spark: Any, tmp_path: Path) -> None:
    """What is appended, rotated, compacted and purged meanwhile is no damage."""
    with owner_at_work(tmp_path) as is_writing:
        reports = [verify(spark, str(tmp_path))]
        while is_writing():
            reports.append(verify(spark, str(tmp_path)))
    assert all(report.is_good for report in reports), [list(map(str, report.findings)) for report in reports]
    assert reported(verify(spark, str(tmp_path))) == reported(here(tmp_path))


def test_damage_beside_a_running_owner_is_found(spark: Any, tmp_path: Path) -> None:
    store = make_store(tmp_path, is_open=True)
    put(store, b"d")
    store.witness()
    spoil(tmp_path / "pwal_0000.0000000001", 200)
    report = verify(spark, str(tmp_path))
    assert report.first_damage is not None and report.first_damage.offset == 96
    assert reported(report) == reported(here(tmp_path))
    store.abandon()


def test_a_directory_that_is_no_store_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is no log directory"):
        verify(spark, str(tmp_path))
