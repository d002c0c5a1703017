"""Files checked one by one, and the answers sent as text: judged as if all had been checked here."""

from __future__ import annotations

import json
from collections import Counter

from tests.log.damaged_stores import KINDS, damaged_store, reported
from tests.log.forge import DIRECTORY, small_store
from warren.base.threads import SystemThreads
from warren.files.protocol import Files
from warren.log.check.verify import (
    CheckedFile,
    FileChecks,
    VerifyReport,
    check_files,
    checked_of_plain,
    checked_to_plain,
    checks_of_plain,
    checks_to_plain,
    verify,
    verify_with,
)

SEEDS = 40 * len(KINDS)


def by_text(files: Files) -> VerifyReport:
    """Every check and every answer travels as JSON."""

    def check(checks: FileChecks) -> list[CheckedFile]:
        tasks = [json.loads(json.dumps(checks_to_plain(each))) for each in checks.each()]
        found = [file for task in tasks for file in check_files(files, checks_of_plain(task), SystemThreads())]
        return [checked_of_plain(json.loads(json.dumps(checked_to_plain(file)))) for file in found]

    return verify_with(files, DIRECTORY, check)


def test_what_travelled_as_text_is_judged_the_same_on_random_damage() -> None:
    """Finding for finding, file for file, link for link."""
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        files, kind = damaged_store(seed)
        here = verify(files, DIRECTORY, SystemThreads(), thread_num=1)
        assert reported(by_text(files)) == reported(here), (seed, kind)
        seen[kind] += not here.is_good or here.chain is None or bool(here.chain.lost)
    assert seen["nothing"] == 0
    assert all(seen[kind] > 3 for kind in KINDS[1:]), seen


def test_an_active_file_without_a_header_is_a_finding() -> None:
    files = small_store(is_stopped=True)
    [path] = [f"{DIRECTORY}/{name}" for name in files.list(DIRECTORY) if name == "pwal_0000"]
    files.set_contents(path, b"not a header" + bytes(500))
    report = verify(files, DIRECTORY, SystemThreads())
    assert not report.is_good
    assert path in {finding.path for finding in report.findings}


def test_checks_come_back_as_they_were() -> None:
    files, _ = damaged_store(0)
    seen: list[FileChecks] = []

    def check(checks: FileChecks) -> list[CheckedFile]:
        seen.append(checks)
        return check_files(files, checks, SystemThreads())

    verify_with(files, DIRECTORY, check)
    [checks] = seen
    assert len(checks.records) > 1 and checks.witnessed
    assert checks_of_plain(json.loads(json.dumps(checks_to_plain(checks)))) == checks
    assert [record for each in checks.each() for record in each.records] == list(checks.records)
