"""Quarantine has a budget: above it there is an alarm, and nothing is deleted."""

from __future__ import annotations

from dataclasses import replace

from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.log.recovery import set_aside_bytes
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import MemoryFiles

QUIET = LogSettings(use_worker_process=False, compaction_poll_seconds=3600, snapshot_at_stop=False)


def test_a_quarantine_over_its_budget_is_an_alarm_and_stays_as_it_is() -> None:
    files = MemoryFiles()
    environment = Environment(files, ManualClock(), SystemThreads(), SeededRandom(1))
    with LogStore.open("/log", replace(QUIET, quarantine_bytes_max=100), environment) as store:
        set_aside_bytes(files, "/log", "1-0-100.voided", bytes(100))
        assert store.alarms() == []
        set_aside_bytes(files, "/log", "1-100-101.voided", bytes(1))
        (alarm,) = store.alarms()
        assert "/log/quarantine holds 101 bytes, its budget is 100" in alarm
        store.purge()
        assert files.list("/log/quarantine") == ["1-0-100.voided", "1-100-101.voided"]
