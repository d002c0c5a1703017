"""Kill a real process on a real disk, any number of times, and check that everything it confirmed is there.

    python -m tests.torture.kill_loop --kills 100 [--seed 7] [--directory D]

    writer appends ──acknowledgements through a pipe──▶ we        SIGKILL at a random moment, also while it opens
    we open the directory as any user would, read the start-up snapshot, and compare:

    every acknowledged session is there, with every entry         nothing confirmed is lost
    every session that is there is there whole                    nothing half is visible
    what was there after the last kill is there after this one    what opening showed is durable
    a storage whose removal was acknowledged stays empty          nothing comes back
    the next epoch is greater than every confirmed one        no number is used twice

A kill leaves the page cache as it is, so what a power cut would do is for the simulator (`make simulate`). A failure
prints the seed and leaves the directory.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.writer import RUNS_KEPT, SETTINGS, key_of
from warren.base.threads import SystemThreads
from warren.files.local import LocalFiles
from warren.log.check.verify import verify
from warren.log.store import LogStore

ROOT = Path(__file__).parents[2]
COMPACTED_SHARE = 0.5  # of the kills come when a compaction is done, or later
Session = tuple[int, int, int]  # run, thread, number


@dataclass
class Model:
    """What must be there, by what was confirmed and what was seen."""

    sessions: dict[Session, int] = field(default_factory=dict)  # certain ones, with the count of their entries
    gone: set[int] = field(default_factory=set)  # runs whose storage was certainly removed
    highest_epoch: int = 0
    acknowledged: int = 0
    compactions: int = 0

    def hear(self, line: str) -> None:
        """One line of the writer."""
        verb, *numbers = line.split()
        numbers_read = [int(number) for number in numbers]
        self.highest_epoch = max(self.highest_epoch, numbers_read[-1])
        if verb == "put":
            run, thread, number, parts, _ = numbers_read
            self.sessions[run, thread, number] = parts
            self.acknowledged += 1
        elif verb == "gone":
            self.forget(numbers_read[0])
        elif verb == "compacted":
            self.compactions += 1

    def forget(self, run: int) -> None:
        self.gone.add(run)
        self.sessions = {session: parts for session, parts in self.sessions.items() if session[0] > run}

    def problems(self, state: dict[tuple[int, bytes], bytes], run: int) -> list[str]:
        """What is wrong with a state read back after the kill of this run."""
        found = sessions_in(state)
        wrong = [f"session {s} is there in half" for s, (count, parts) in found.items() if count != parts]
        left = {session[0] for session in found}
        for session, parts in self.sessions.items():
            was_removed = (
                session[0] == run - RUNS_KEPT and session[0] not in left
            )  # asked for, perhaps not acknowledged
            if session not in found and not was_removed:
                wrong.append(f"acknowledged session {session} of {parts} entries is lost")
        wrong += [f"session {session} came back" for session in found if session[0] in self.gone]
        return wrong

    def believe(self, state: dict[tuple[int, bytes], bytes], run: int) -> None:
        """What opening showed is durable from now on, whether it was acknowledged or not."""
        found = sessions_in(state)
        removal_was_due = run - RUNS_KEPT
        if not any(session[0] == removal_was_due for session in found):
            self.forget(removal_was_due)
        self.sessions |= {session: parts for session, (_, parts) in found.items()}


def sessions_in(state: dict[tuple[int, bytes], bytes]) -> dict[Session, tuple[int, int]]:
    """Each session with the number of its entries that are there, and how many it says it has."""
    found: dict[Session, tuple[int, int]] = {}
    for (run, key), value in state.items():
        thread, number, part = (int(word) for word in key.split(b"/"))
        assert key == key_of(thread, number, part)
        parts = int(value.partition(b"|")[0])
        count, _ = found.get((run, thread, number), (0, parts))
        found[run, thread, number] = (count + 1, parts)
    return found


def kill_once(directory: str, run: int, rng: random.Random, model: Model) -> bool:
    """Start a writer, listen, kill it at a random moment. Was it killed before it had opened?"""
    command = [sys.executable, "-m", "tests.torture.writer", directory, str(run), str(rng.randrange(1 << 30))]
    kills_early = rng.random() < 0.15
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        output = b""
        if kills_early:
            time.sleep(rng.uniform(0.1, 0.6))
        else:
            output += _first_line(writer)
            if rng.random() < COMPACTED_SHARE:
                output += _read_up_to(writer, b"compacted")
            seconds = rng.choice([0.002, 0.05, 0.4, 1.0]) * rng.random()
            output += _read_within(writer, seconds)
        os.kill(writer.pid, signal.SIGKILL)
        output += writer.stdout.read()
        writer.wait()
    assert writer.returncode == -signal.SIGKILL, f"the writer of run {run} ended early: {writer.returncode}"
    *lines, rest = output.decode().split("\n")
    assert rest == "", "a line is there whole or not at all"
    for line in lines:
        model.hear(line)
    return not lines


def _first_line(writer: subprocess.Popen[bytes]) -> bytes:
    assert writer.stdout
    output = b""
    while not output.endswith(b"\n"):
        byte = os.read(writer.stdout.fileno(), 1)
        assert byte, "the writer could not open the directory"
        output += byte
    return output


def _read_up_to(writer: subprocess.Popen[bytes], word: bytes) -> bytes:
    """However long the machine takes for it: a kill behind a compaction is worth more than one before."""
    assert writer.stdout
    output = b""
    while word not in output:
        some = os.read(writer.stdout.fileno(), 1 << 16)
        assert some, f"the writer ended before it said {word.decode()}"
        output += some
    return output


def _read_within(writer: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Keep the pipe from filling up."""
    assert writer.stdout
    deadline = time.monotonic() + seconds
    output = b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([writer.stdout], [], [], left)[0]:
            output += os.read(writer.stdout.fileno(), 1 << 16)
    return output


def check_after_kill(directory: str, run: int, model: Model, is_verified: bool) -> None:
    """Open the directory through the product's own path and compare."""
    if is_verified:
        report = verify(LocalFiles(), directory, SystemThreads())
        assert report.is_good, f"verify says: {report.first_damage}"
    store = LogStore.open(directory, SETTINGS)
    state = {(row.storage, row.key): row.value for row in store.snapshot().cursor()}
    problems = model.problems(state, run)
    assert not problems, "\n".join(problems[:20])
    assert store.commit.open_epoch > model.highest_epoch, "an epoch number will be used twice"
    model.believe(state, run)
    if run % 2:
        store.close()
    else:
        store.abandon()


def run_loop(directory: str, kills: int, seed: int, is_quiet: bool = False) -> Model:
    rng = random.Random(seed)
    model = Model()
    for run in range(1, kills + 1):
        was_early = kill_once(directory, run, rng, model)
        check_after_kill(directory, run, model, is_verified=run % 5 == 0)
        if not is_quiet:
            early = ", while it opened" if was_early else ""
            print(f"kill {run}/{kills}{early}: {model.acknowledged} acknowledged sessions, all there", flush=True)
    return model


def main() -> int:
    parser = argparse.ArgumentParser(
        description="kill -9 a writer again and again; everything acknowledged must be there"
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--directory", help="on the disk to be tried; a temporary one if none is named")
    options = parser.parse_args()
    home = options.directory or tempfile.mkdtemp(prefix="warren-torture-")
    print(f"seed {options.seed}, directory {home}", flush=True)
    try:
        run_loop(os.path.join(home, "log"), options.kills, options.seed)
    except AssertionError as failure:
        print(f"FAILED: {failure}\nseed {options.seed}; the directory {home} is left as it is", file=sys.stderr)
        return 1
    if not options.directory:
        shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
