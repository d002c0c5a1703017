"""`verify` with its files checked by Spark's tasks: the same findings as `warren log verify`, found on many machines.

    driver      manifest, epoch files ─▶ which files there are
    executors   a file each, the largest first: every block's checksum, every block decoded, its closing blocks gathered
    driver      the verdicts of all, the chain of epochs from the horizon to the witness, what else lies about

Takes no lock and no pin and changes nothing. A file that a running store purges meanwhile is no damage.
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
from warren.pipeline.jobs.spark_tasks import Progress, Told, no_owner, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(session: SparkSession, directory: str, progress: Progress = no_owner) -> VerifyReport:
    """Check a log directory, which this process and every executor see under the same name."""

    def check(checks: FileChecks) -> list[CheckedFile]:
        largest_first = sorted(checks.each(), key=lambda each: -each.records[0].end)
        answers = run_tasks(session, check_some, [checks_to_plain(each) for each in largest_first], progress)
        files = [checked_of_plain(file) for answer in answers for file in answer["files"]]
        places = {record.number: place for place, record in enumerate(checks.records)}
        return sorted(files, key=lambda file: places[file.scan.record.number])

    return verify_with(Environment.real().files, directory, check)


def check_some(task: Told) -> Told:
    """What a task does."""
    environment = Environment.real()
    checked = check_files(environment.files, checks_of_plain(task), environment.threads)
    return {"files": [checked_to_plain(file) for file in checked]}
