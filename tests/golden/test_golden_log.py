"""Golden transcripts of the log store: a script, and what it leaves on disk, block by block.

    put 1 a hello
    commit
    show
    ---
    pwal_0000   0 file_header …

`make golden` rewrites the transcripts; the diff is reviewed like code. Everything runs on the disk in memory, a manual
clock and a seed, so that every byte is the same each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.simulator.corruption import flip_bit
from warren.base.errors import WarrenError
from warren.base.threads import SystemThreads
from warren.durability.closing_block import read_closing
from warren.durability.epoch_file import read_witness
from warren.files.environment import Environment
from warren.files.protocol import join
from warren.log.file_record import EPOCH, is_wal
from warren.log.manifest import read_manifest
from warren.log.read.blocks import walk
from warren.log.session import Session
from warren.log.settings import EntryKind, LogSettings
from warren.log.store import LogStore
from warren.records.block import Header, check_block
from warren.records.entries import read_entries
from warren.records.format import BlockKind
from warren.testing.fakes import ManualClock, SeededRandom
from warren.testing.memory_files import SYNCED, MemoryFiles

SCRIPTS = sorted((Path(__file__).parent / "log").glob("*.txt"))
SETTINGS = LogSettings(
    channel_count=2, use_worker_process=False, compaction_poll_seconds=1e9, retention_seconds=0, snapshot_at_stop=False
)
DIRECTORY = "/log"


class Script:
    """Runs one script; every line may add lines to the transcript."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.clock = ManualClock()
        self.openings = 0
        self.transcript: list[str] = []
        self.sessions: dict[int, Session] = {}
        self.store = self._open()

    def run(self, lines: list[str]) -> str:
        for line in lines:
            verb, *words = line.split()
            getattr(self, f"do_{verb}")(*words)
        self.store.abandon()
        return "\n".join(self.transcript) + "\n"

    def do_put(self, storage: str, key: str, value: str, channel: str = "0") -> None:
        self._session(channel).put(int(storage), key.encode(), value.encode())

    def do_remove(self, storage: str, key: str, channel: str = "0") -> None:
        self._session(channel).remove(int(storage), key.encode())

    def do_clear(self, storage: str, channel: str = "0") -> None:
        self._session(channel).clear_storage(int(storage))

    def do_end(self) -> None:
        """End every open session; not durable yet."""
        for session in self.sessions.values():
            session.end()
        self.sessions = {}

    def do_commit(self) -> None:
        ends = [session.end() for session in self.sessions.values()]
        self.sessions = {}
        self.store.wait(max(ends))
        self.transcript.append(f"durable {self.store.durable}")

    def do_rotate(self) -> None:
        result = self.store.rotate()
        self.transcript.append(f"rotated up to epoch {result.epoch}: {', '.join(r.name for r in result.rotated)}")

    def do_compact(self) -> None:
        done = self.store.compact()
        self.transcript.append("compacted " + " ".join(f"{name}={value}" for name, value in done.items()))

    def do_purge(self) -> None:
        done = self.store.purge()
        self.transcript.append(f"purged {', '.join(done.files)}; horizon {done.horizon}")

    def do_snapshot(self) -> None:
        for row in self.store.refresh().cursor():
            self.transcript.append(f"row {row.storage} {row.key.decode()} = {row.value.decode()} version {row.version}")

    def do_reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def do_crash(self) -> None:
        """The power goes: only what was synced is left."""
        self.sessions = {}
        survived = self.files.crash(SYNCED, SeededRandom(7))
        self.store.abandon()
        self.files = survived
        self.store = self._open()

    def do_kill(self) -> None:
        """The process goes: everything written is left."""
        self.sessions = {}
        self.store.abandon()
        self.store = self._open()

    def do_flip(self, name: str, byte: str) -> None:
        self.store.abandon()
        flip_bit(self.files, join(DIRECTORY, name), int(byte) * 8)
        try:
            self.store = self._open()
        except WarrenError as error:
            self.transcript += [f"refused: {line.strip()}" for line in str(error).splitlines()]

    def do_show(self) -> None:
        self.store.witness()
        for name in self.files.list(DIRECTORY):
            if is_wal(name):
                self._show_file(name)
        witness, problems = read_witness(self.files, join(DIRECTORY, EPOCH))
        assert witness is not None and not problems
        self.transcript.append(
            f"epoch       durable {witness.durable}, ends {[(e.number, e.end) for e in witness.ends]}"
        )
        for number, record in sorted(read_manifest(self.files, DIRECTORY).files.items()):
            voided = "".join(f" voided {v.start}…{v.end} ({v.reason})" for v in record.voided)
            self.transcript.append(f"manifest    {number} {record.state} {record.name} end {record.end}{voided}")

    def _show_file(self, name: str) -> None:
        view = self.files.open(join(DIRECTORY, name)).view()
        first = check_block(view, 0, None)
        assert isinstance(first, Header)
        for header in walk(view, None).headers:
            kind = BlockKind(header.kind)
            detail = DETAILS[kind](view, header) if kind in DETAILS else ""
            self.transcript.append(f"{name:11} {header.offset:5} {kind.name.lower():11} epoch {header.epoch}{detail}")

    def _session(self, channel: str) -> Session:
        number = int(channel)
        if number not in self.sessions:
            self.sessions[number] = self.store.begin(number)
        return self.sessions[number]

    def _open(self) -> LogStore:
        self.openings += 1
        self.clock.advance_ns(1_000_000_000)
        environment = Environment(self.files, self.clock, SystemThreads(), SeededRandom(self.openings))
        store = LogStore.open(DIRECTORY, SETTINGS, environment)
        self.transcript.append(f"opened: durable {store.durable}, next epoch {store.opened.first_epoch}")
        return store


def show_entries(view: memoryview, header: Header) -> str:
    entries = read_entries(view, header)
    rows = []
    for row in range(entries.count):
        kind = EntryKind(entries.kinds.at(row)).name.lower()
        version = f"{entries.majors.at(row)}.{entries.minors.at(row)}"
        key, value = entries.keys.at(row).decode(), entries.values.at(row).decode()
        rows.append(f"{kind} {entries.storages.at(row)}/{key}={value}@{version}")
    return " | " + ", ".join(rows)


def show_closing(view: memoryview, header: Header) -> str:
    closing = read_closing(header.epoch, view[header.body_at : header.end])
    parts = ", ".join(f"{part.file}:{part.end}" for part in closing.parts)
    return f" | behind {closing.previous}, parts {parts}"


ShowBlock = Callable[[memoryview, Header], str]
DETAILS: dict[BlockKind, ShowBlock] = {
    BlockKind.ENTRIES: show_entries,
    BlockKind.SORTED: show_entries,
    BlockKind.CLOSING: show_closing,
}


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_the_script_leaves_what_its_golden_transcript_says(path: Path) -> None:
    script, _, golden = path.read_text().partition("---\n")
    transcript = Script().run([line for line in script.splitlines() if line.strip()])
    if os.environ.get("WARREN_GOLDEN") == "rewrite":
        path.write_text(f"{script}---\n{transcript}")
    else:
        assert transcript == golden
