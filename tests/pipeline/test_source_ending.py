"""A process that gets SIGTERM stops its reader first, and ends of the signal all the same."""

from __future__ import annotations

import signal
import subprocess
import sys

SCRIPT = """
import signal, threading
from warren.pipeline.source import call_at_sigterm
{before}
signal.raise_signal(signal.SIGTERM)
print("went on")
"""
CALL = "call_at_sigterm(lambda: print('stopped', flush=True))"


def ended(before: str) -> tuple[str, str, int]:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)], capture_output=True, text=True, check=False
    )
    return result.stdout, result.stderr, result.returncode


def test_the_reader_is_stopped_and_the_process_ends_of_the_signal() -> None:
    """X-06: a stream that has ended keeps no file; the exit status is that of the signal."""
    assert ended(CALL) == ("stopped\n", "", -signal.SIGTERM)


def test_who_listens_already_is_not_disturbed() -> None:
    theirs = "signal.signal(signal.SIGTERM, lambda number, frame: print('theirs', flush=True))"
    assert ended(f"{theirs}\n{CALL}") == ("theirs\nwent on\n", "", 0)


def test_outside_of_the_main_thread_nothing_is_done() -> None:
    """Spark's own process for a reader has a single thread; elsewhere signals are not ours to take."""
    in_thread = "thread = threading.Thread(target=call_at_sigterm, args=[print])\nthread.start()\nthread.join()"
    assert ended(in_thread) == ("", "", -signal.SIGTERM)
