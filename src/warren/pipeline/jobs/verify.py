"""`verify` with files checked by Spark tasks: the same findings as `warren log verify`, found on many machines.

    driver      manifest, epoch files ─▶ list of files
    executors   a file each, the largest first: every block's checksum, every block decoded, closing blocks collected
    driver      all verdicts, the chain of epochs from the horizon to the witness, unknown files

Takes no lock and no pin and changes nothing. A file purged by a running store meanwhile is not damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.files.environment import Environment
from warren.log.check.verify import (
    CheckedFile,
    FileChecks,
    VerifyReport,
    check_files,
    checked_of_plain,
    checked_to_plain,
    checks_of_plain,
    checks_to_plain,
    verify_with,
)
from warren.pipeline.jobs.spark_tasks import Progress, TaskData, ignore_progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(session: SparkSession, directory: str, progress: Progress = ignore_progress) -> VerifyReport:
    """Check a log directory, which has the same path for this process and every executor."""

    def check(checks: FileChecks) -> list[CheckedFile]:
        largest_first = sorted(checks.each(), key=lambda each: -each.records[0].end)
        answers = run_tasks(session, check_some, [checks_to_plain(each) for each in largest_first], progress)
        files = [checked_of_plain(file) for answer in answers for file in answer["files"]]
        places = {record.number: place for place, record in enumerate(checks.records)}
        return sorted(files, key=lambda file: places[file.scan.record.number])

    return verify_with(Environment.real().files, directory, check)


def check_some(task: TaskData) -> TaskData:
    """Body of a Spark task."""
    environment = Environment.real()
    checked = check_files(environment.files, checks_of_plain(task), environment.threads)
    return {"files": [checked_to_plain(file) for file in checked]}
